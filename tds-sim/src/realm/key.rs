//! API key of a member: a client id, a client secret, and roles.

use std::{fmt, sync::Arc};

use serde_json::{Value, json};

/// Client id and client secret of a key. `Debug` does not show the secret.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiKey {
    /// Public part of the key, which the client sends as `client_id`.
    pub client_id: Arc<str>,
    /// Secret part of the key, which the client sends as `client_secret`.
    pub client_secret: Arc<str>,
}

/// Key as the realm keeps it.
pub(crate) struct Key {
    pub(super) member: String,
    api_key: ApiKey,
    /// Subject of the key's tokens, which is its service account.
    subject: String,
    pub(crate) roles: Vec<String>,
    pub(crate) enabled: bool,
}

// === impl ApiKey ===

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKey")
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

// === impl Key ===

impl Key {
    pub(super) fn new(member: &str, roles: Vec<String>, rng: &mut fastrand::Rng) -> Self {
        let id = format!("{member}-{:08x}", rng.u32(..));
        Self {
            member: member.to_owned(),
            api_key: ApiKey {
                client_id: id.into(),
                client_secret: uuid(rng).into(),
            },
            subject: uuid(rng),
            roles,
            enabled: true,
        }
    }

    pub(super) fn rotate(&mut self, rng: &mut fastrand::Rng) {
        self.api_key.client_secret = uuid(rng).into();
    }

    pub(crate) fn api_key(&self) -> ApiKey {
        self.api_key.clone()
    }

    /// Whether `secret` is the current one.
    pub(crate) fn opens_with(&self, secret: &str) -> bool {
        *self.api_key.client_secret == *secret
    }

    /// Returns the claims of a token for this key, issued at `wall` for `expires_in` seconds, in
    /// the form of Keycloak 26.
    pub(super) fn claims(
        &self,
        wall: i64,
        expires_in: u64,
        scope: &str,
        issuer: &str,
        rng: &mut fastrand::Rng,
    ) -> Value {
        let id = &*self.api_key.client_id;
        json!({
            "exp": wall.saturating_add(i64::try_from(expires_in).unwrap_or(i64::MAX)),
            "iat": wall,
            "jti": format!("trrtcc:{}", uuid(rng)),
            "iss": issuer,
            "aud": "account",
            "sub": self.subject,
            "typ": "Bearer",
            "azp": id,
            "acr": "1",
            "realm_access": { "roles": self.roles },
            "resource_access": {
                "account": { "roles": ["manage-account", "manage-account-links", "view-profile"] },
            },
            "scope": scope,
            "email_verified": false,
            "clientHost": "127.0.0.1",
            "clientAddress": "127.0.0.1",
            "client_id": id,
            "preferred_username": format!("service-account-{id}"),
        })
    }
}

/// Returns a text in the form of a random UUID.
fn uuid(rng: &mut fastrand::Rng) -> String {
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        rng.u32(..),
        rng.u16(..),
        rng.u16(..0x1000),
        rng.u16(..0x1000),
        rng.u64(..0x1_0000_0000_0000),
    )
}
