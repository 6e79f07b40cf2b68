//! What a token says about itself, for diagnosis. Nothing is verified.

use http::HeaderValue;
use serde::Deserialize;

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

/// The realm roles in a bearer header, if its token is a JWT that can be read.
///
/// RFC 9068, section 6, tells clients not to look into tokens, and so nothing is decided here. The
/// roles go into a diagnosis for people, who would otherwise decode the token by hand.
pub(crate) fn realm_roles(header: &HeaderValue) -> Option<Vec<String>> {
    let token = header.as_bytes().strip_prefix(b"Bearer ")?;
    // The parser expects three parts.
    if token.iter().filter(|b| **b == b'.').count() != 2 {
        return None;
    }
    let claims: Claims = jsonwebtoken::dangerous::insecure_decode_claims(token).ok()?;
    claims.realm_access.map(|access| access.roles)
}
