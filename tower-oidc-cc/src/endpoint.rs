//! The token endpoint: its URL, or the issuer that names it.

use std::{fmt, time::SystemTime};

use bytes::Bytes;
use http::{Uri, response::Parts, uri::Scheme};
use serde::Deserialize;

#[cfg(feature = "private-key-jwt")]
use crate::origin::default_port;
use crate::{ConfigError, Origin, TokenError, error::Kind, reply};

#[cfg(test)]
mod tests;

/// The token endpoint of an authorization server.
///
/// Its address is https; plain http is for a server on this machine, in development and tests:
/// `localhost`, `127.0.0.0/8` and `[::1]`.
///
/// # Replies
///
/// | reply | result |
/// |---|---|
/// | a byte-order mark before the object | skipped |
/// | `expires_in` as `60`, `60.0`, `"60"`, `"60.0"` | 60 seconds; fractions are cut off |
/// | `expires_in` absent or null | five minutes |
/// | a member twice | transient: tried again |
/// | `error` with any value, beside a token | ignored |
/// | unknown members, `refresh_token` | ignored |
/// | `token_type` Bearer, in any letter case | accepted |
/// | another `token_type`, or none | refused |
/// | HTML, a list, a torn or empty body, more than 64 KiB | transient: tried again |
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
    /// The address of the endpoint, or of the discovery document.
    uri: Uri,
    origin: Origin,
    /// The issuer that the discovery document must name.
    issuer: Option<String>,
}

/// The members of the document that count (OpenID Connect Discovery 1.0, section 3).
#[derive(Deserialize)]
struct Document {
    issuer: String,
    token_endpoint: String,
}

// === impl TokenEndpoint ===

impl TokenEndpoint {
    /// Takes the address of any token endpoint; its query, if it has one, is kept.
    ///
    /// # Errors
    ///
    /// If the address is plain http on another machine, is not absolute, or carries user information.
    pub fn new(uri: Uri) -> Result<Self, ConfigError> {
        Ok(Self {
            origin: Origin::loopback(&uri)?,
            uri,
            issuer: None,
        })
    }

    /// Builds `{auth_url}/auth/realms/{realm}/protocol/openid-connect/token`.
    ///
    /// Servers without the `/auth` prefix (Keycloak 17 and later, by default) take
    /// [`new`](Self::new) with the whole address.
    ///
    /// # Errors
    ///
    /// If `auth_url` is plain http on another machine, or already has what is appended here, or if `realm` is
    /// not made of unreserved characters (RFC 3986, section 2.3).
    pub fn keycloak(auth_url: &str, realm: &str) -> Result<Self, ConfigError> {
        Self::new(keycloak(auth_url, realm)?)
    }

    /// Discovers the endpoint in the issuer's configuration. Takes the address of the issuer, or that
    /// of the document, which ends in `/.well-known/openid-configuration`.
    ///
    /// The document is read before the first token request, and again after a failed one, unless the
    /// credentials were refused. It must name this issuer and a `token_endpoint` over https. The
    /// `token_endpoint` may be plain http on this machine if the document was read like that. A
    /// failure is retried like that of a token request.
    ///
    /// # Errors
    ///
    /// If the address is plain http on another machine, is not absolute, or has user information or a
    /// query.
    pub fn discover(issuer: &str) -> Result<Self, ConfigError> {
        let issuer = issuer.trim();
        let issuer = issuer.strip_suffix(WELL_KNOWN).unwrap_or(issuer);
        if issuer.contains(['?', '#']) {
            return Err(ConfigError::new(
                "the issuer has a query or a fragment: use the part before it",
            ));
        }
        let document = format!("{}{WELL_KNOWN}", issuer.trim_end_matches('/'));
        let document = document.parse();
        let document =
            document.map_err(|_| ConfigError::new("the issuer is no URL: use https://host"))?;
        Ok(Self {
            issuer: Some(issuer.to_owned()),
            ..Self::new(document)?
        })
    }

    pub(crate) fn is_discovered(&self) -> bool {
        self.issuer.is_some()
    }

    /// The endpoint in the discovery document.
    pub(crate) fn found(
        &self,
        head: &Parts,
        body: Result<Bytes, TokenError>,
        now: SystemTime,
    ) -> Result<Self, TokenError> {
        let malformed = |what| TokenError::new(Kind::Malformed(what));
        if !head.status.is_success() {
            return Err(reply::failure(head, None, now));
        }
        let document: Document = serde_json::from_slice(&body?)
            .map_err(|_| malformed("it names no issuer and token_endpoint"))?;
        let same = self
            .issuer
            .as_deref()
            .map(|issuer| issuer.trim_end_matches('/'));
        if same != Some(document.issuer.trim_end_matches('/')) {
            return Err(malformed("it is another issuer's"));
        }
        let uri = document.token_endpoint.parse().ok();
        let endpoint = uri.and_then(|uri| Self::new(uri).ok());
        // A document that came over https names no endpoint on this machine.
        let secure = |found: &Self| found.uri.scheme() != Some(&Scheme::HTTP);
        let endpoint = endpoint.filter(|found| secure(found) || !secure(self));
        endpoint.ok_or_else(|| malformed("its token_endpoint is no https address"))
    }

    /// The address of token requests, or of the discovery document.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The audience of a signed statement: the address without query and default port. Servers compare
    /// it, letter by letter, with their own (RFC 7523, section 3; RFC 3986, section 6.2.1).
    #[cfg(feature = "private-key-jwt")]
    pub(crate) fn audience(&self) -> String {
        let scheme = self.uri.scheme().unwrap_or(&Scheme::HTTPS);
        let authority = self.uri.authority().map_or("", |it| it.as_str());
        let default = default_port(scheme).map(|port| format!(":{port}"));
        let bare = default.and_then(|port| authority.strip_suffix(port.as_str()));
        format!(
            "{scheme}://{}{}",
            bare.unwrap_or(authority),
            self.uri.path()
        )
    }
}

/// Origin and path, without the query, which may hold a secret.
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
    // A host may have that name.
    let named = base.split_once("://").map_or(base, |(_, named)| named);
    if named.ends_with("/auth") || named.contains("/realms/") {
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

/// OpenID Connect Discovery 1.0, section 4.
const WELL_KNOWN: &str = "/.well-known/openid-configuration";
