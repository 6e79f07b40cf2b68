//! The claims of an access token.

use serde::Serialize;

use crate::realm::key::{Key, uuid};

/// What a token says, in the shape in which Keycloak 26 says it.
#[derive(Debug, Serialize)]
pub(super) struct Claims {
    exp: i64,
    iat: i64,
    jti: String,
    iss: &'static str,
    sub: String,
    typ: &'static str,
    azp: String,
    acr: &'static str,
    realm_access: RealmAccess,
    scope: String,
    preferred_username: String,
}

#[derive(Debug, Serialize)]
struct RealmAccess {
    roles: Vec<String>,
}

// === impl Key ===

impl Key {
    /// The claims of a token for this key, issued at `wall` for `expires_in` seconds.
    pub(super) fn claims(
        &self,
        wall: i64,
        expires_in: u64,
        scope: &str,
        rng: &mut fastrand::Rng,
    ) -> Claims {
        let id = self.api_key().client_id().to_owned();
        Claims {
            exp: wall.saturating_add(i64::try_from(expires_in).unwrap_or(i64::MAX)),
            iat: wall,
            jti: format!("trrtcc:{}", uuid(rng)),
            iss: ISSUER,
            sub: self.subject.clone(),
            typ: "Bearer",
            preferred_username: format!("service-account-{id}"),
            azp: id,
            acr: "1",
            realm_access: RealmAccess {
                roles: self.roles.clone(),
            },
            scope: scope.to_owned(),
        }
    }
}

/// The issuer. It names no port, so that a token stays the same whichever port is free.
const ISSUER: &str = "http://127.0.0.1/auth/realms/ServiceConnect";
