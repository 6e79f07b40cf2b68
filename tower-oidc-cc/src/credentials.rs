//! The client's id, and its secret or its key (RFC 6749, section 2.3).

use std::{fmt, time::SystemTime};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use form_urlencoded::byte_serialize;
use http::HeaderValue;
use zeroize::Zeroizing;

#[cfg(feature = "private-key-jwt")]
use crate::Assertion;
use crate::{ConfigError, TokenEndpoint, TokenError, request::Form};

#[cfg(test)]
mod tests;

/// A client id and its proof, checked by the constructor.
///
/// There are three methods, one constructor each. A request uses one of them and tries no other.
///
/// | constructor | method | where the proof travels |
/// |---|---|---|
/// | [`new`](Self::new) | `client_secret_post` | the secret, in the form |
/// | [`basic`](Self::basic) | `client_secret_basic` | the secret, in the `Authorization` header |
/// | `private_key_jwt` (feature `private-key-jwt`) | `private_key_jwt` | no secret: a new signed statement each time |
///
/// White space around an id or a secret is cut off, because files end with a newline. `Debug` shows
/// neither the secret nor its length. This copy of the secret is wiped on drop; those in the buffers of
/// an HTTP client are not.
///
/// # Examples
///
/// ```
/// use tower_oidc_cc::Credentials;
///
/// let credentials = Credentials::new("my-client", "s3cr3t\n")?;
/// assert!(!format!("{credentials:?}").contains("s3cr3t"));
/// assert!(Credentials::new("my-client", "").is_err());
/// # Ok::<(), tower_oidc_cc::ConfigError>(())
/// ```
pub struct Credentials {
    client_id: String,
    proof: Proof,
}

/// The proof of a client, by method.
enum Proof {
    /// `client_secret_post`: the secret, in the form.
    Post(Zeroizing<String>),
    /// `client_secret_basic`: the header, made once.
    Basic(HeaderValue),
    /// `private_key_jwt`: the signer of a new statement for each attempt.
    #[cfg(feature = "private-key-jwt")]
    Assertion(Assertion),
}

// === impl Credentials ===

impl Credentials {
    /// Checks and takes a client id, and a client secret that travels in the form.
    ///
    /// RFC 6749 prefers the header, but Keycloak up to 18 and some later releases do not decode its
    /// form-encoding. Use this one where the server takes both.
    ///
    /// # Errors
    ///
    /// If either is empty, or has a tab, a line end or another control character inside. Spaces inside
    /// are allowed (RFC 6749, appendix A).
    pub fn new(
        client_id: impl Into<String>,
        client_secret: impl Into<String>,
    ) -> Result<Self, ConfigError> {
        let (client_id, secret) = pair(client_id.into(), client_secret.into())?;
        Ok(Self {
            client_id,
            proof: Proof::Post(secret),
        })
    }

    /// Checks and takes a client id, and a client secret that travels in a Basic header.
    ///
    /// Both are form-encoded first (RFC 6749, section 2.3.1), so any character will do.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub fn basic(
        client_id: impl Into<String>,
        client_secret: impl Into<String>,
    ) -> Result<Self, ConfigError> {
        let (client_id, secret) = pair(client_id.into(), client_secret.into())?;
        let header = basic(&client_id, &secret).ok_or(ConfigError::new(
            "the client id and the secret make no header",
        ))?;
        Ok(Self {
            client_id,
            proof: Proof::Basic(header),
        })
    }

    /// Checks and takes a client id, and what signs its statements.
    ///
    /// # Errors
    ///
    /// If the id is empty, or has control characters inside.
    #[cfg(feature = "private-key-jwt")]
    pub fn private_key_jwt(
        client_id: impl Into<String>,
        assertion: Assertion,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            client_id: checked(client_id.into(), ID)?,
            proof: Proof::Assertion(assertion),
        })
    }

    pub(crate) fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Puts the proof for one request to `endpoint` into its form, or returns the header with it.
    #[cfg_attr(
        not(feature = "private-key-jwt"),
        expect(
            unused_variables,
            reason = "only a statement says when it was made and whom it is for"
        )
    )]
    pub(crate) fn prove_at(
        &self,
        now: SystemTime,
        endpoint: &TokenEndpoint,
        form: &mut Form,
    ) -> Result<Option<HeaderValue>, TokenError> {
        match &self.proof {
            Proof::Basic(header) => return Ok(Some(header.clone())),
            Proof::Post(secret) => {
                form.append_pair("client_id", &self.client_id);
                form.append_pair("client_secret", secret);
            }
            #[cfg(feature = "private-key-jwt")]
            Proof::Assertion(assertion) => {
                let statement = assertion
                    .sign_at(now, &self.client_id, &endpoint.audience())
                    .ok_or_else(|| TokenError::no_credentials(&UNSIGNED))?;
                // The statement names the client, but some servers read this field first.
                form.append_pair("client_id", &self.client_id);
                form.append_pair("client_assertion_type", ASSERTION_TYPE);
                form.append_pair("client_assertion", &statement);
            }
        }
        Ok(None)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("client_id", &self.client_id)
            .field("proof", &self.proof)
            .finish()
    }
}

/// The method alone: no secret, and not the length of one.
impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Post(_) => f.write_str("client_secret_post([redacted])"),
            Self::Basic(_) => f.write_str("client_secret_basic([redacted])"),
            #[cfg(feature = "private-key-jwt")]
            Self::Assertion(assertion) => assertion.fmt(f),
        }
    }
}

fn pair(client_id: String, secret: String) -> Result<(String, Zeroizing<String>), ConfigError> {
    let secret = Zeroizing::new(checked(secret, SECRET)?);
    Ok((checked(client_id, ID)?, secret))
}

fn checked(value: String, [empty, broken]: [&'static str; 2]) -> Result<String, ConfigError> {
    let value = Zeroizing::new(value);
    let value = value.trim_matches(blank);
    if value.is_empty() {
        return Err(ConfigError::new(empty));
    }
    // RFC 6749, appendices A.1 and A.2, allow the space.
    if value.contains(|c: char| c != ' ' && (blank(c) || c.is_control())) {
        return Err(ConfigError::new(broken));
    }
    Ok(value.into())
}

/// White space, and invisible characters of a pasted text: a byte-order mark, zero-width spaces.
fn blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{feff}' | '\u{200b}'..='\u{200d}' | '\u{2060}')
}

/// Makes the sensitive header of a client, form-encoded first (RFC 6749, section 2.3.1).
fn basic(id: &str, secret: &str) -> Option<HeaderValue> {
    let pair: String = byte_serialize(id.as_bytes())
        .chain([":"])
        .chain(byte_serialize(secret.as_bytes()))
        .collect();
    let line = format!(
        "Basic {}",
        BASE64_STANDARD.encode(Zeroizing::new(pair).as_bytes())
    );
    let mut header = HeaderValue::try_from(line).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// The texts for an empty value, and for one with control characters inside.
const ID: [&str; 2] = [
    "the client id is empty: set the one that the server issued",
    "the client id has a line end or another control character inside: set the one that the server \
     issued and nothing else",
];
const SECRET: [&str; 2] = [
    "the client secret is empty: set the one that the server issued",
    "the client secret has a line end or another control character inside: set the one that the \
     server issued and nothing else",
];
/// RFC 7523, section 2.2.
#[cfg(feature = "private-key-jwt")]
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
#[cfg(feature = "private-key-jwt")]
const UNSIGNED: ConfigError = ConfigError::new("the private key made no signature");
