//! What a token says about itself, for diagnosis. Nothing is verified.

use std::time::{Duration, SystemTime};

use http::HeaderValue;
use serde::{Deserialize, de::DeserializeOwned};

#[cfg(test)]
mod tests;

/// The claim of Keycloak's that lists realm roles.
#[derive(Deserialize)]
struct Claims {
    realm_access: Option<RealmAccess>,
}

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
    // The parser expects three parts.
    if token.iter().filter(|b| **b == b'.').count() != 2 {
        return None;
    }
    jsonwebtoken::dangerous::insecure_decode_claims(token).ok()
}
