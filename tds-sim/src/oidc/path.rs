//! Paths of the provider's endpoints.

/// What the identity provider has at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    Token,
    Revoke,
    /// Nothing, within the realm.
    Unknown,
    /// A realm that does not exist.
    OtherRealm,
    /// Nothing, outside `/auth`.
    Outside,
}

// === impl Endpoint ===

impl Endpoint {
    /// Whether `path` names the realm itself or its token endpoint, as audiences do.
    pub(super) fn is_issuer_or_token(path: &str) -> bool {
        Self::at(path) == Self::Token || path.strip_prefix("/auth/realms/") == Some(REALM)
    }

    /// The endpoint at `path`, with or without a trailing slash.
    pub(super) fn at(path: &str) -> Self {
        let path = path.strip_suffix('/').unwrap_or(path);
        let Some(path) = path.strip_prefix("/auth/realms/") else {
            return Self::Outside;
        };
        match path.split_once('/') {
            Some((REALM, "protocol/openid-connect/token")) => Self::Token,
            Some((REALM, "protocol/openid-connect/revoke")) => Self::Revoke,
            Some((REALM, _)) => Self::Unknown,
            Some(_) => Self::OtherRealm,
            None if path == REALM => Self::Unknown,
            None => Self::OtherRealm,
        }
    }
}

/// Contract, "Token endpoint": the realm in the path.
const REALM: &str = "ServiceConnect";
