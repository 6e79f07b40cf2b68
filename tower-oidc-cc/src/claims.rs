//! The claims of a token, read for diagnosis and for a shorter life. Nothing is verified, and
//! so nothing of cryptography is needed.

use std::time::{Duration, SystemTime};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use http::HeaderValue;
use serde::{Deserialize, de::DeserializeOwned};
use zeroize::Zeroizing;

#[cfg(test)]
mod tests;

/// The claim of Keycloak's that lists realm roles.
#[cfg(feature = "claims")]
#[derive(Deserialize)]
struct Claims {
    realm_access: Option<RealmAccess>,
}

#[cfg(feature = "claims")]
#[derive(Deserialize)]
struct RealmAccess {
    #[serde(default)]
    roles: Vec<String>,
}

/// When a token ends by its own word (RFC 7519, section 4.1.4).
#[derive(Deserialize)]
struct Ends {
    exp: f64,
}

/// The realm roles in a bearer header, if its token is a JWT that can be read.
///
/// RFC 9068, section 6, tells clients not to look into tokens, and so nothing is decided here. The
/// roles go into a diagnosis for people, who would otherwise decode the token by hand.
#[cfg(feature = "claims")]
pub(crate) fn realm_roles(header: &HeaderValue) -> Option<Vec<String>> {
    let claims: Claims = read(header)?;
    claims.realm_access.map(|access| access.roles)
}

/// When the token in a bearer header ends, if it is a JWT that says so.
pub(crate) fn expires_at(header: &HeaderValue) -> Option<SystemTime> {
    let ends: Ends = read(header)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(ends.exp).ok()?)
}

fn read<T: DeserializeOwned>(header: &HeaderValue) -> Option<T> {
    let token = header.as_bytes().strip_prefix(b"Bearer ")?;
    let mut parts = token.split(|b| *b == b'.');
    let (Some(_), Some(payload), Some(_), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let mut json = Zeroizing::new(vec![0; base64::decoded_len_estimate(payload.len())]);
    let length = BASE64_URL_SAFE_NO_PAD
        .decode_slice(payload, &mut json)
        .ok()?;
    serde_json::from_slice(json.get(..length)?).ok()
}
