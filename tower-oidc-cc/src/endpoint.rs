//! The token endpoint: its URL, or the issuer that names it.

use std::{fmt, time::SystemTime};

use bytes::Bytes;
use http::{Uri, response::Parts, uri::Scheme};
use serde::Deserialize;
use serde_json::Value;
use tower_tds_outcome::place;

use crate::{
    error::{ConfigError, ErrorKind, TokenError},
    origin::Origin,
    reply,
};

#[cfg(test)]
mod tests;

/// Token endpoint of an authorization server.
///
/// Use an https address. Plain http is accepted only for a server on this machine (`localhost`,
/// `127.0.0.0/8` and `[::1]`), in development and tests.
///
/// # Replies
///
/// | reply | result |
/// |---|---|
/// | a byte-order mark before the object | skipped |
/// | `expires_in` as `60`, `60.0`, `"60"`, `"60.0"` | 60 seconds; fractions are cut off |
/// | `expires_in` absent or null | five minutes |
/// | a known member twice | transient: tried again |
/// | `error` with any value, together with a token | ignored |
/// | unknown members, `refresh_token` | ignored |
/// | `token_type` `Bearer` or `BearerToken` in any letter case, or none | accepted |
/// | another `token_type` | an error; not transient |
/// | HTML, a list, a truncated or empty body, more than 64 KiB | transient: tried again |
/// | 401, whatever its body | wrong credentials; not transient |
/// | 400, unless its body is an HTML page | a wrong setting; not transient |
/// | 408, 425, 429, 5xx, or the code `temporarily_unavailable`, `server_error`, `slow_down`, `unknown_error` | transient: tried again |
/// | 403 with an `error` code | a wrong setting; not transient |
/// | another 4xx | transient: tried again |
/// | 200 with an `error` and no token | as a 400: not transient, unless its code is |
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
    /// Address of the endpoint, or of the discovery document.
    uri: Uri,
    /// Issuer that the discovery document must name.
    issuer: Option<String>,
}

/// Members of the document that are read (OpenID Connect Discovery 1.0, section 3).
#[derive(Default, Deserialize)]
#[serde(default)]
struct Document {
    issuer: Value,
    token_endpoint: Value,
}

// === impl TokenEndpoint ===

impl TokenEndpoint {
    /// Takes the address of any token endpoint, and keeps its query.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is plain http on another machine, is not absolute, or
    /// carries user information.
    pub fn new(uri: Uri) -> Result<Self, ConfigError> {
        Origin::from_uri(&uri)?;
        Ok(Self { uri, issuer: None })
    }

    /// Builds `{auth_url}/auth/realms/{realm}/protocol/openid-connect/token`.
    ///
    /// For servers without the `/auth` prefix (Keycloak 17 and later, by default), use
    /// [`new`](Self::new) with the whole address.
    ///
    /// # Errors
    ///
    /// Returns an error if `auth_url` is plain http on another machine, is not absolute, has a
    /// query, or already contains a part of this path. It also returns an error if `realm` is
    /// empty, consists only of dots, or has a character other than letters, digits, `-`, `.`, `_`
    /// and `~` (RFC 3986, section 2.3).
    pub fn keycloak(auth_url: &str, realm: &str) -> Result<Self, ConfigError> {
        let base = auth_url.trim().trim_end_matches('/');
        if base.contains(['?', '#']) {
            return Err(ConfigError::new(
                "the auth URL has a query or a fragment: use the part before it",
            ));
        }
        // Only the part after the scheme is read: a host may be called `auth`.
        let named = base.split_once("://").map_or(base, |(_, named)| named);
        if named.ends_with("/auth") || named.contains("/realms/") {
            return Err(ConfigError::new(
                "the auth URL already has the path that is appended to it: use the part before /auth",
            ));
        }
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        if realm.bytes().all(|b| b == b'.') || !realm.bytes().all(plain) {
            return Err(ConfigError::new(
                "the realm is empty or has characters that need escaping: check its name, or use \
                 `new` with the whole address",
            ));
        }
        let uri = format!("{base}/auth/realms/{realm}/protocol/openid-connect/token").parse();
        Self::new(uri.map_err(|_| ConfigError::new("the auth URL is not a URL: use https://host"))?)
    }

    /// Takes the address of an issuer, whose discovery document names the endpoint.
    ///
    /// You can also pass the address of the document itself (OpenID Connect or RFC 8414), which
    /// contains `/.well-known/`.
    ///
    /// The document is read before each token request. It must name this issuer and a `token_endpoint` over https; a
    /// document that was read over plain http on this machine may also name a plain http address on
    /// this machine. Failures are retried like those of a token request.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is plain http on another machine, is not absolute, or has
    /// user information or a query.
    pub fn discover(issuer: &str) -> Result<Self, ConfigError> {
        let address = issuer.trim().trim_end_matches('/');
        if address.contains(['?', '#']) {
            return Err(ConfigError::new(
                "the issuer has a query or a fragment: use the part before it",
            ));
        }
        let (issuer, document) = match address.split_once("/.well-known/") {
            // The path of the issuer stands before the name of the document, or behind it (RFC
            // 8414).
            Some((start, name)) => {
                let path = name.find('/').and_then(|at| name.get(at..));
                (
                    start.to_owned() + path.unwrap_or_default(),
                    address.to_owned(),
                )
            }
            None => (address.to_owned(), format!("{address}{WELL_KNOWN}")),
        };
        let document = document.parse();
        let document =
            document.map_err(|_| ConfigError::new("the issuer is not a URL: use https://host"))?;
        Ok(Self {
            issuer: Some(issuer),
            ..Self::new(document)?
        })
    }

    pub(crate) fn is_discovered(&self) -> bool {
        self.issuer.is_some()
    }

    /// Reads the endpoint from the reply with the discovery document.
    pub(crate) fn found(
        &self,
        head: &Parts,
        body: Result<Bytes, TokenError>,
        now: SystemTime,
    ) -> Result<Self, TokenError> {
        let malformed = |what| TokenError::new(ErrorKind::Malformed(what));
        if !head.status.is_success() {
            let kind = ErrorKind::Unavailable(head.status);
            return Err(reply::failure(head, kind, now));
        }
        let document: Document = reply::parse(&body?).map_err(malformed)?;
        let (Some(issuer), Some(uri)) =
            (document.issuer.as_str(), document.token_endpoint.as_str())
        else {
            return Err(malformed(
                "it does not have both an issuer and a token_endpoint",
            ));
        };
        if self.issuer.as_deref() != Some(issuer.trim_end_matches('/')) {
            return Err(malformed("it names another issuer"));
        }
        let uri = uri.parse().ok();
        let endpoint = uri.and_then(|uri| Self::new(uri).ok());
        // A document that came over https must not name a plain http endpoint.
        let secure = |found: &Self| found.uri.scheme() != Some(&Scheme::HTTP);
        let endpoint = endpoint.filter(|found| secure(found) || !secure(self));
        endpoint.ok_or_else(|| malformed("its token_endpoint is not an https address"))
    }

    /// Returns the address of token requests, or of the discovery document.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }
}

/// Shows the origin and the path, without the query, which may hold a secret.
impl fmt::Debug for TokenEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenEndpoint({})", place(&self.uri))
    }
}

/// OpenID Connect Discovery 1.0, section 4.
const WELL_KNOWN: &str = "/.well-known/openid-configuration";
