//! HTTP Basic, as OAuth wants it: form-encoded first (RFC 6749, section 2.3.1).

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use form_urlencoded::byte_serialize;
use http::{HeaderValue, header::InvalidHeaderValue};
use zeroize::Zeroizing;

use crate::wiped::Wiped;

#[cfg(test)]
mod tests;

/// Makes the sensitive header of a client. Its bytes are wiped with the last copy of it.
pub(super) fn header(id: &str, secret: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut pair = Wiped::default();
    put(&mut pair, id);
    pair.push(b":");
    put(&mut pair, secret);
    let digits = pair.as_slice().len().div_ceil(3).saturating_mul(4);
    let mut line = Zeroizing::new(vec![0; SCHEME.len().saturating_add(digits)]);
    let (scheme, rest) = line.split_at_mut(SCHEME.len());
    scheme.copy_from_slice(SCHEME);
    // Into a slice: what encodes into a string does so by way of the stack.
    let encoded = BASE64_STANDARD.encode_slice(pair.as_slice(), rest);
    debug_assert_eq!(encoded, Ok(digits), "the line has room for all of it");
    let mut header = HeaderValue::from_maybe_shared(Bytes::from_owner(line))?;
    header.set_sensitive(true);
    Ok(header)
}

fn put(pair: &mut Wiped, text: &str) {
    for piece in byte_serialize(text.as_bytes()) {
        pair.push(piece.as_bytes());
    }
}

const SCHEME: &[u8] = b"Basic ";
