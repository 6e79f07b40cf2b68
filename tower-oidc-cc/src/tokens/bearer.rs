//! A token, ready to be sent.

use bytes::Bytes;
use http::HeaderValue;
use zeroize::Zeroizing;

use crate::{lifetime::Lifetime, moment::Moment};

/// One token: its header, made once, and the numbers that the slot is run by.
#[derive(Debug)]
pub(crate) struct Bearer {
    pub(crate) header: HeaderValue,
    pub(crate) generation: u64,
    pub(crate) born: Moment,
    pub(crate) lifetime: Lifetime,
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
    let mut line = Vec::with_capacity(SCHEME.len().saturating_add(token.len()));
    line.extend_from_slice(SCHEME);
    line.extend_from_slice(token.as_bytes());
    let mut header = HeaderValue::from_maybe_shared(Bytes::from_owner(Zeroizing::new(line)))
        .map_err(|_| "it is no header value")?;
    header.set_sensitive(true);
    Ok(header)
}

/// The token in a header that [`header`] made.
pub(crate) fn token(header: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(header.as_bytes().strip_prefix(SCHEME)?).ok()
}

const SCHEME: &[u8] = b"Bearer ";
