//! A token, ready to be sent.

use bytes::Bytes;
use http::HeaderValue;
use zeroize::Zeroizing;

use super::badge::{LANES, pick};
use crate::{lifetime::Lifetime, moment::Moment};

/// One token: its header, made once, and the numbers that the slot is run by.
#[derive(Debug)]
pub(crate) struct Bearer {
    pub(crate) generation: u64,
    pub(crate) born: Moment,
    pub(crate) lifetime: Lifetime,
    headers: [HeaderValue; LANES],
}

/// The bytes of a header, with the count of their users on a cache line of their own: it stands
/// right before this.
#[repr(align(128))]
struct Line {
    bytes: Zeroizing<Vec<u8>>,
}

// === impl Bearer ===

impl Bearer {
    pub(super) fn new(
        header: &HeaderValue,
        generation: u64,
        (born, lifetime): (Moment, Lifetime),
    ) -> Self {
        Self {
            generation,
            born,
            lifetime,
            headers: std::array::from_fn(|_| copy(header)),
        }
    }

    /// The header for the thread that asks.
    pub(super) fn header(&self) -> &HeaderValue {
        pick(&self.headers)
    }
}

// === impl Line ===

impl AsRef<[u8]> for Line {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Makes the sensitive header of a token, or says why it cannot be one.
///
/// The bytes are wiped when the last copy of the header is dropped, here or in the HTTP client.
pub(crate) fn header(token: &str) -> Result<HeaderValue, &'static str> {
    if token.is_empty() {
        return Err("it is empty");
    }
    // RFC 6750, section 2.1, allows less still; what must not pass is a space, a line end or
    // anything that another reader of the header would take for the end of it.
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("it is not visible ASCII");
    }
    sensitive(&[SCHEME, token.as_bytes()]).map_err(|_| "it is no header value")
}

/// The same header in bytes of its own.
fn copy(header: &HeaderValue) -> HeaderValue {
    sensitive(&[header.as_bytes()]).unwrap_or_else(|_| header.clone())
}

fn sensitive(parts: &[&[u8]]) -> Result<HeaderValue, http::header::InvalidHeaderValue> {
    let line = Line {
        bytes: Zeroizing::new(parts.concat()),
    };
    let mut header = HeaderValue::from_maybe_shared(Bytes::from_owner(line))?;
    header.set_sensitive(true);
    Ok(header)
}

/// The token in a header that [`header`] made.
pub(crate) fn token(header: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(header.as_bytes().strip_prefix(SCHEME)?).ok()
}

const SCHEME: &[u8] = b"Bearer ";
