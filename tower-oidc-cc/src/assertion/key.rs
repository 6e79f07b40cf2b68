//! A private key out of its file, with no copy left behind.
//!
//! By hand: what parses PEM elsewhere, in jsonwebtoken for one, frees its copies of the key as they
//! are.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jsonwebtoken::EncodingKey;
use pkcs8::PrivateKeyInfo;
use zeroize::Zeroizing;

use crate::wiped::Wiped;

#[cfg(test)]
mod tests;

/// An RSA key, in PKCS #1 or PKCS #8. Whether it is one turns out when it signs.
pub(super) fn rsa(pem: &[u8]) -> Option<EncodingKey> {
    let (label, der) = first(pem)?;
    match label {
        b"RSA PRIVATE KEY" => Some(EncodingKey::from_rsa_der(&der)),
        b"PRIVATE KEY" => {
            let key = PrivateKeyInfo::try_from(der.as_slice()).ok()?;
            Some(EncodingKey::from_rsa_der(key.private_key))
        }
        _ => None,
    }
}

/// A key on an elliptic curve, in PKCS #8. Whether it is one turns out when it signs.
pub(super) fn ec(pem: &[u8]) -> Option<EncodingKey> {
    let (label, der) = first(pem)?;
    (label == b"PRIVATE KEY").then(|| EncodingKey::from_ec_der(&der))
}

/// The label and the content of the first block of a PEM file (RFC 7468, section 3). Whatever
/// stands before it or after it is not looked at.
fn first(pem: &[u8]) -> Option<(&[u8], Zeroizing<Vec<u8>>)> {
    let (_, rest) = split(pem, b"-----BEGIN ")?;
    let (label, rest) = split(rest, b"-----")?;
    let (content, rest) = split(rest, b"-----END ")?;
    let (end, _) = split(rest, b"-----")?;
    if end != label {
        return None;
    }
    let mut digits = Wiped::with_capacity(content.len());
    for word in content.split(u8::is_ascii_whitespace) {
        digits.push(word);
    }
    let digits = digits.as_slice();
    let mut der = Zeroizing::new(vec![0; base64::decoded_len_estimate(digits.len())]);
    let length = BASE64_STANDARD.decode_slice(digits, &mut der).ok()?;
    der.truncate(length);
    Some((label, der))
}

fn split<'a>(text: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(mark.len()).position(|w| w == mark)?;
    let (before, rest) = text.split_at_checked(at)?;
    Some((before, rest.strip_prefix(mark)?))
}
