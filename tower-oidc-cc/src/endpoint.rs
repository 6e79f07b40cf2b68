//! Where tokens come from.

use std::fmt;

use http::Uri;

use crate::{ConfigError, Origin};

#[cfg(test)]
mod tests;

/// Names the token endpoint of an authorization server.
///
/// # Examples
///
/// ```
/// use tower_oidc_cc::TokenEndpoint;
///
/// let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "ServiceConnect")?;
/// assert_eq!(
///     endpoint.uri().path(),
///     "/auth/realms/ServiceConnect/protocol/openid-connect/token",
/// );
/// assert!(TokenEndpoint::keycloak("http://sso.example.com", "ServiceConnect").is_err());
/// # Ok::<(), tower_oidc_cc::ConfigError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct TokenEndpoint {
    uri: Uri,
    origin: Origin,
}

// === impl TokenEndpoint ===

impl TokenEndpoint {
    /// Takes the https address of any token endpoint; its query, if it has one, is kept.
    ///
    /// # Errors
    ///
    /// If the address is not https, is not absolute, or carries user information.
    pub fn new(uri: Uri) -> Result<Self, ConfigError> {
        let origin = Origin::from_uri(&uri)?;
        Ok(Self { uri, origin })
    }

    /// Takes the address of any token endpoint, plain http too if it is on this machine.
    ///
    /// # Errors
    ///
    /// If the address is plain http on another host, is not absolute, or carries user information.
    pub fn loopback(uri: Uri) -> Result<Self, ConfigError> {
        let origin = Origin::loopback(&uri)?;
        Ok(Self { uri, origin })
    }

    /// Builds `{auth_url}/auth/realms/{realm}/protocol/openid-connect/token`, over https.
    ///
    /// Servers without the `/auth` prefix (Keycloak 17 and later, by default) take
    /// [`new`](Self::new) with the whole address.
    ///
    /// # Errors
    ///
    /// If `auth_url` is no https address, or already has what is appended here, or if `realm` is
    /// not made of unreserved characters (RFC 3986, section 2.3).
    pub fn keycloak(auth_url: &str, realm: &str) -> Result<Self, ConfigError> {
        Self::new(keycloak(auth_url, realm)?)
    }

    /// Builds what [`keycloak`](Self::keycloak) builds, over plain http too if it is on this
    /// machine.
    ///
    /// # Errors
    ///
    /// Those of [`keycloak`](Self::keycloak), with plain http refused on other hosts only.
    pub fn keycloak_loopback(auth_url: &str, realm: &str) -> Result<Self, ConfigError> {
        Self::loopback(keycloak(auth_url, realm)?)
    }

    /// The address that token requests go to.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// What a signed statement calls the endpoint: its address as the server sees it, with no query
    /// and no port that goes without saying. Servers compare it, letter by letter, with the address
    /// that they publish (RFC 7523, section 3, by RFC 3986, section 6.2.1).
    #[cfg(feature = "private-key-jwt")]
    pub(crate) fn audience(&self) -> String {
        let scheme = self.uri.scheme_str().unwrap_or_default();
        let host = self.uri.host().unwrap_or_default();
        let port = self.origin.port().map(|port| format!(":{port}"));
        let port = port.unwrap_or_default();
        format!("{scheme}://{host}{port}{}", self.uri.path())
    }
}

/// Origin and path; a query is the operator's business and stays out of logs.
impl fmt::Debug for TokenEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenEndpoint({}{})", self.origin, self.uri.path())
    }
}

fn keycloak(auth_url: &str, realm: &str) -> Result<Uri, ConfigError> {
    let base = auth_url.trim().trim_end_matches('/');
    if base.contains(['?', '#']) {
        return Err(ConfigError::new(
            "the auth URL has a query or a fragment: use the part before it",
        ));
    }
    if base.ends_with("/auth") || base.contains("/realms/") {
        return Err(ConfigError::new(
            "the auth URL already has the path that is appended to it: use the part before /auth",
        ));
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    if realm.is_empty() || realm.bytes().all(|b| b == b'.') || !realm.bytes().all(plain) {
        return Err(ConfigError::new(
            "the realm is empty or has characters that need escaping: check its name, or use \
             `new` with the whole address",
        ));
    }
    format!("{base}/auth/realms/{realm}/protocol/openid-connect/token")
        .parse()
        .map_err(|_| ConfigError::new("the auth URL is no URL: use https://host"))
}
