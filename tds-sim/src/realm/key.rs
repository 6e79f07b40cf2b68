//! An API key of a member: a client id, a client secret, and what they may do.

use std::{fmt, sync::Arc};

use crate::realm::PublicKey;

/// The client id and client secret of a key.
///
/// `Debug` and `Display` do not show the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    id: Arc<str>,
    secret: Arc<str>,
}

/// A key as the realm keeps it.
#[derive(Debug)]
pub(crate) struct Key {
    api_key: ApiKey,
    member: String,
    /// The subject of its tokens: the key's service account.
    pub(super) subject: String,
    pub(crate) roles: Vec<String>,
    pub(crate) enabled: bool,
    /// What checks its statements, if it has a key in place of its secret.
    pub(crate) public: Option<PublicKey>,
    /// Whether it may use the client credentials grant.
    pub(crate) service_account: bool,
}

// === impl ApiKey ===

impl ApiKey {
    /// The client id.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.id
    }

    /// The client secret.
    #[must_use]
    pub fn client_secret(&self) -> &str {
        &self.secret
    }

    pub(crate) fn shared_id(&self) -> Arc<str> {
        Arc::clone(&self.id)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKey")
            .field("client_id", &self.id)
            .finish_non_exhaustive()
    }
}

// === impl Key ===

impl Key {
    pub(super) fn new(member: &str, roles: Vec<String>, rng: &mut fastrand::Rng) -> Self {
        let id = format!("{member}-{:08x}", rng.u32(..));
        Self {
            api_key: ApiKey {
                id: id.into(),
                secret: uuid(rng).into(),
            },
            member: member.to_owned(),
            subject: uuid(rng),
            roles,
            enabled: true,
            public: None,
            service_account: true,
        }
    }

    pub(super) fn rotate(&mut self, rng: &mut fastrand::Rng) {
        self.api_key.secret = uuid(rng).into();
    }

    pub(crate) fn api_key(&self) -> ApiKey {
        self.api_key.clone()
    }

    pub(super) fn member(&self) -> &str {
        &self.member
    }

    /// Whether `secret` is the current one.
    pub(crate) fn opens_with(&self, secret: &str) -> bool {
        *self.api_key.secret == *secret
    }
}

/// Something in the shape of a random UUID.
pub(super) fn uuid(rng: &mut fastrand::Rng) -> String {
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        rng.u32(..),
        rng.u16(..),
        rng.u16(..0x1000),
        rng.u16(..0x1000),
        rng.u64(..0x1_0000_0000_0000),
    )
}
