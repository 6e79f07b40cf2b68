//! The claims of an access token.

use serde::Serialize;

use crate::realm::key::{Key, uuid};

/// What a token says, in the shape in which Keycloak 26 says it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Claims {
    exp: i64,
    iat: i64,
    jti: String,
    iss: &'static str,
    sub: String,
    typ: &'static str,
    aud: String,
    azp: String,
    acr: &'static str,
    realm_access: RealmAccess,
    resource_access: ResourceAccess,
    scope: String,
    email_verified: bool,
    #[serde(rename = "clientHost")]
    client_host: &'static str,
    #[serde(rename = "clientAddress")]
    client_address: &'static str,
    client_id: String,
    preferred_username: String,
}

/// What every account of a realm may do with itself; it is there unless somebody takes it away.
#[derive(Debug, Clone, Serialize)]
struct ResourceAccess {
    account: AccountAccess,
}

#[derive(Debug, Clone, Serialize)]
struct AccountAccess {
    roles: [&'static str; 3],
}

#[derive(Debug, Clone, Serialize)]
struct RealmAccess {
    roles: Vec<String>,
}

// === impl Claims ===

impl Claims {
    /// The same of an identity token, which is for the client itself.
    pub(super) fn of_identity(&self) -> Self {
        Self {
            typ: "ID",
            aud: self.azp.clone(),
            ..self.clone()
        }
    }
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
            aud: "account".to_owned(),
            client_id: id.clone(),
            azp: id,
            acr: "1",
            realm_access: RealmAccess {
                roles: self.roles.clone(),
            },
            resource_access: ResourceAccess {
                account: AccountAccess {
                    roles: ["manage-account", "manage-account-links", "view-profile"],
                },
            },
            scope: scope.to_owned(),
            email_verified: false,
            client_host: "127.0.0.1",
            client_address: "127.0.0.1",
        }
    }
}

/// The issuer. It names no port, so that a token stays the same whichever port is free.
const ISSUER: &str = "http://127.0.0.1/auth/realms/ServiceConnect";
