//! HTTP Basic, as OAuth wants it: form-encoded first (RFC 6749, section 2.3.1).

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use form_urlencoded::byte_serialize;
use http::{HeaderValue, header::InvalidHeaderValue};
use zeroize::Zeroizing;

#[cfg(test)]
mod tests;

/// Makes the sensitive header of a client. Its bytes are wiped with the last copy of it.
pub(crate) fn header(id: &str, secret: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    // One byte becomes three at most: neither buffer grows, and so none leaves a copy behind.
    let room = id.len().saturating_add(secret.len()).saturating_mul(3);
    let mut pair = Zeroizing::new(String::with_capacity(room.saturating_add(1)));
    pair.extend(byte_serialize(id.as_bytes()));
    pair.push(':');
    pair.extend(byte_serialize(secret.as_bytes()));
    let encoded = pair.len().div_ceil(3).saturating_mul(4);
    let mut line = String::with_capacity(SCHEME.len().saturating_add(encoded));
    line.push_str(SCHEME);
    BASE64_STANDARD.encode_string(pair.as_bytes(), &mut line);
    let line = Bytes::from_owner(Zeroizing::new(line.into_bytes()));
    let mut header = HeaderValue::from_maybe_shared(line)?;
    header.set_sensitive(true);
    Ok(header)
}

const SCHEME: &str = "Basic ";
