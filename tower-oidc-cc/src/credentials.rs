//! The client id with its secret or its key (RFC 6749, section 2.3), and providers of credentials.

use std::{
    error::Error,
    fmt, fs,
    future::{Future, ready},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use form_urlencoded::{Serializer, byte_serialize};
use futures_util::{FutureExt as _, future::BoxFuture};
use http::HeaderValue;
use tokio::task::spawn_blocking;
use tower_tds_outcome::Secrets;
#[cfg(feature = "private-key-jwt")]
use tower_tds_outcome::place;
use zeroize::Zeroizing;

#[cfg(feature = "private-key-jwt")]
use crate::assertion::Assertion;
use crate::{
    endpoint::TokenEndpoint,
    error::{BoxError, ConfigError, TokenError},
};

#[cfg(test)]
mod tests;

/// Credentials for token requests: a client id, its proof, and further fields of the form.
///
/// Choose the constructor by the method your server expects: a request uses one method and tries no
/// other.
///
/// | constructor | method | where the proof travels |
/// |---|---|---|
/// | [`new`](Self::new) | `client_secret_post` | the secret, in the form |
/// | [`basic`](Self::basic) | `client_secret_basic` | the secret, in the `Authorization` header |
/// | `private_key_jwt` (feature `private-key-jwt`) | `private_key_jwt` | no secret: a new signed assertion for each request |
/// | [`empty`](Self::empty) | `tls_client_auth`, `none` | in the TLS handshake, in the [`field`](Self::field)s that you add, or nowhere |
///
/// For any other grant, add [`field`](Self::field)s: see the code for [your server](crate::_servers).
///
/// White space around an id or a secret is cut off, because files end with a newline. `Debug` shows neither the secret
/// nor its length, and only the names of the fields. When credentials are dropped, the secret of [`new`](Self::new) and
/// the fields are wiped from memory. The header of [`basic`](Self::basic) and copies in the buffers of an HTTP client
/// are not.
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
    /// The `Authorization` of `client_secret_basic`, made once.
    header: Option<HeaderValue>,
    /// The key of `private_key_jwt`, which signs a new assertion for each attempt.
    #[cfg(feature = "private-key-jwt")]
    assertion: Option<Assertion>,
    /// Fields of the form, from `client_secret` to those of other grants. Their values may be secrets.
    fields: Vec<(String, Zeroizing<String>)>,
}

/// Provides credentials: fixed ones, or the current ones from outside the program.
///
/// With [`file`](Self::file) and [`from_fn`](Self::from_fn) you can rotate a secret without a restart, because the
/// provider is called before each token request. If the server refuses the credentials, calls go on with the token in
/// use. Without one, or once the service refuses it, they call the provider every five seconds, and new credentials end
/// the backoff.
///
/// # Examples
///
/// ```
/// use tower_oidc_cc::{Credentials, CredentialsProvider};
///
/// let mounted = CredentialsProvider::file("my-client", "/run/secrets/client");
/// // From a vault, or with a field that is new for each request.
/// let made = CredentialsProvider::from_fn(|| async {
/// #   async fn read_vault() -> String { String::from("s3cr3t") }
///     Credentials::new("my-client", read_vault().await)
/// });
/// # drop((mounted, made));
/// ```
#[derive(Clone)]
pub struct CredentialsProvider(Arc<dyn Fn() -> Providing + Send + Sync>);

/// Form of a token request.
pub(crate) type Form = Serializer<'static, String>;
/// Future of a provider: credentials, or why there are none.
pub(crate) type Providing = BoxFuture<'static, Result<Arc<Credentials>, BoxError>>;

// === impl Credentials ===

impl Credentials {
    /// Creates credentials that send the client secret in the form.
    ///
    /// If the server accepts both methods, prefer this one. RFC 6749 prefers the header of [`basic`](Self::basic), but
    /// Keycloak up to 18 and some later releases do not decode its form-encoding.
    ///
    /// # Errors
    ///
    /// Returns an error if the id or the secret is empty or contains a control character, such as a tab or a line end.
    /// Spaces inside are allowed (RFC 6749, appendix A).
    pub fn new(
        client_id: impl Into<String>,
        client_secret: impl Into<String>,
    ) -> Result<Self, ConfigError> {
        let (client_id, secret) = pair(client_id.into(), client_secret.into())?;
        let credentials = Self::empty(client_id.clone()).field("client_id", client_id);
        Ok(credentials.secret("client_secret", secret))
    }

    /// Creates credentials that send the client id and the client secret in a Basic header.
    ///
    /// Both are form-encoded first (RFC 6749, section 2.3.1), so every accepted character arrives
    /// unchanged at a server that decodes them.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`new`](Self::new).
    pub fn basic(
        client_id: impl Into<String>,
        client_secret: impl Into<String>,
    ) -> Result<Self, ConfigError> {
        let (client_id, secret) = pair(client_id.into(), client_secret.into())?;
        let header = basic(&client_id, &secret).ok_or(ConfigError::new(
            "the client id and the secret do not form a header",
        ))?;
        Ok(Self {
            header: Some(header),
            ..Self::empty(client_id)
        })
    }

    /// Creates credentials that send an assertion, which is signed for each token request.
    ///
    /// # Errors
    ///
    /// Returns an error if the id is empty or contains a control character.
    #[cfg(feature = "private-key-jwt")]
    pub fn private_key_jwt(
        client_id: impl Into<String>,
        assertion: Assertion,
    ) -> Result<Self, ConfigError> {
        let client_id = checked(client_id.into(), ID)?;
        // The assertion names the client, but some servers read this field first.
        let credentials = Self::empty(client_id.clone()).field("client_id", client_id);
        Ok(Self {
            assertion: Some(assertion),
            ..credentials
        })
    }

    /// Starts with an empty form: for servers that identify you by an assertion, a certificate of the HTTP client (RFC
    /// 8705), or nothing.
    ///
    /// Only the [`field`](Self::field)s that you add are sent, such as `client_id`. The `name` is for a
    /// [`TokenStore`](crate::TokenStore), which keeps the token under it.
    #[must_use]
    pub fn empty(name: impl Into<String>) -> Self {
        Self {
            client_id: name.into(),
            header: None,
            #[cfg(feature = "private-key-jwt")]
            assertion: None,
            fields: Vec::new(),
        }
    }

    /// Adds a field to the form of the token request, such as an assertion.
    ///
    /// A field `grant_type` replaces `client_credentials`. If a value must be new for each request,
    /// return the credentials from [`CredentialsProvider::from_fn`]. For values that never change and are not secret, prefer
    /// [`TokenSourceBuilder::field`](crate::TokenSourceBuilder::field).
    ///
    /// Programs of one client must not share a store if they act for different subjects: a
    /// [`TokenStore`](crate::TokenStore) distinguishes tokens by endpoint, fields of the builder and client id, but not by these
    /// fields.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_oidc_cc::Credentials;
    ///
    /// // Exchanges the token of another issuer (RFC 8693).
    /// # let token = "canary";
    /// let credentials = Credentials::basic("my-client", "s3cr3t")?
    ///     .field("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange")
    ///     .field("subject_token_type", "urn:ietf:params:oauth:token-type:jwt")
    ///     .field("subject_token", token);
    /// assert!(!format!("{credentials:?}").contains(token));
    /// # Ok::<(), tower_oidc_cc::ConfigError>(())
    /// ```
    #[must_use]
    pub fn field(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.secret(name, Zeroizing::new(value.into()))
    }

    fn secret(mut self, name: impl Into<String>, value: Zeroizing<String>) -> Self {
        self.fields.push((name.into(), value));
        self
    }

    pub(crate) fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Returns 16 bits that show whether credentials have changed. They are stored beside tokens, so they are too few to
    /// help to guess a secret.
    pub(crate) fn digest(&self) -> u16 {
        let mut hash = DefaultHasher::new();
        let header = self.header.as_ref().map(HeaderValue::as_bytes);
        (&self.client_id, header).hash(&mut hash);
        for (name, value) in &self.fields {
            (name, value.as_str()).hash(&mut hash);
        }
        let [high, low, ..] = hash.finish().to_be_bytes();
        u16::from_be_bytes([high, low])
    }

    /// Adds what proves the client to the secrets that no text may show. An assertion is recognised by its form.
    pub(crate) fn tell(&self, secrets: &Secrets) {
        if let Some(header) = &self.header {
            secrets.add("authorization", header);
        }
        for (name, value) in &self.fields {
            if let Some(proof) = PROOFS.into_iter().find(|proof| proof == name) {
                secrets.add(proof, value);
            }
        }
    }

    /// Fills the form of one request to `endpoint`, and returns the header if it holds the proof.
    pub(crate) fn prove_at(
        &self,
        now: SystemTime,
        endpoint: &TokenEndpoint,
        form: &mut Form,
    ) -> Result<Option<HeaderValue>, TokenError> {
        if self.fields.iter().all(|(name, _)| name != "grant_type") {
            form.append_pair("grant_type", "client_credentials");
        }
        let fields = self.fields.iter();
        form.extend_pairs(fields.map(|(name, value)| (name, value.as_str())));
        // Of all proofs, only an assertion contains a time and an audience.
        #[cfg(not(feature = "private-key-jwt"))]
        let _ = (now, endpoint);
        #[cfg(feature = "private-key-jwt")]
        if let Some(assertion) = &self.assertion {
            let signed = assertion
                .sign_at(now, &self.client_id, &place(endpoint.uri()))
                .ok_or_else(|| TokenError::no_credentials(&UNSIGNED, &Secrets::default()))?;
            form.append_pair("client_assertion_type", ASSERTION_TYPE);
            form.append_pair("client_assertion", &signed);
        }
        Ok(self.header.clone())
    }
}

/// Shows neither a secret nor its length.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.fields.iter().map(|(name, _)| name);
        f.debug_struct("Credentials")
            .field("client_id", &self.client_id)
            .field("header", &self.header)
            .field("fields", &Vec::from_iter(names))
            .finish_non_exhaustive()
    }
}

// === impl CredentialsProvider ===

impl CredentialsProvider {
    /// Reads the secret of `client_id` from a file that holds it and nothing else.
    ///
    /// The file is read again before each token request. A half-written secret looks like a whole one, so write the new
    /// secret to another file, and rename that to this one. It must be a regular file of 16 KiB at most.
    ///
    /// On unix, a file that its group or other users can write is refused, because they could then choose the secret.
    ///
    /// Each read takes a blocking thread of the runtime. If a network file system hangs, that thread hangs with it.
    #[must_use]
    pub fn file(client_id: impl Into<String>, client_secret: impl Into<PathBuf>) -> Self {
        let (client_id, path) = (client_id.into(), Arc::<Path>::from(client_secret.into()));
        Self::from_fn(move || {
            let (client_id, path) = (client_id.clone(), Arc::clone(&path));
            async move {
                let text = spawn_blocking(move || read(&path)).await??;
                Ok::<_, Box<dyn Error + Send + Sync>>(Credentials::new(client_id, text.as_str())?)
            }
        })
    }

    /// Calls an async function, such as the client of a vault.
    ///
    /// Each call has the timeout of a token request. If it fails, only the text of its error is kept, redacted as by
    /// [`Secrets::redact`].
    #[must_use]
    pub fn from_fn<F, A, E>(function: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let provided = |it: Result<Credentials, E>| it.map(Arc::new).map_err(Into::into);
        Self(Arc::new(move || function().map(provided).boxed()))
    }

    /// Returns the current credentials. The function behind a provider may panic in this call.
    pub(crate) fn provide(&self) -> Providing {
        (self.0)()
    }
}

impl From<Credentials> for CredentialsProvider {
    fn from(credentials: Credentials) -> Self {
        let credentials = Arc::new(credentials);
        Self(Arc::new(move || {
            ready(Ok(Arc::clone(&credentials))).boxed()
        }))
    }
}

impl fmt::Debug for CredentialsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialsProvider")
    }
}

fn pair(client_id: String, secret: String) -> Result<(String, Zeroizing<String>), ConfigError> {
    let secret = Zeroizing::new(checked(secret, SECRET)?);
    Ok((checked(client_id, ID)?, secret))
}

fn checked(value: String, fault: ConfigError) -> Result<String, ConfigError> {
    let value = Zeroizing::new(value);
    let value = value.trim_matches(blank);
    // RFC 6749, appendices A.1 and A.2, allow the space.
    let is_foreign = |c: char| c != ' ' && (blank(c) || c.is_control());
    if value.is_empty() || value.contains(is_foreign) {
        return Err(fault);
    }
    Ok(value.into())
}

/// White space, and invisible characters of a pasted text: a byte-order mark, zero-width spaces.
fn blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{feff}' | '\u{200b}'..='\u{200d}' | '\u{2060}')
}

/// Returns the Basic header of a client, marked as sensitive. Id and secret are form-encoded first (RFC
/// 6749, section 2.3.1).
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

/// Reads the file of a secret. A watch would miss the changes of a network file system.
fn read(path: &Path) -> Result<Zeroizing<String>, Box<dyn Error + Send + Sync>> {
    let refused = |reason: &str| format!("{}: {reason}", path.display());
    let named = |error: io::Error| refused(&error.to_string());
    // The file is checked before it is opened, because opening a pipe waits for its writer.
    let metadata = fs::metadata(path).map_err(named)?;
    let fault = if !metadata.is_file() {
        Some("it is not a regular file")
    } else if metadata.len() > LARGEST {
        Some("it is larger than 16 KiB")
    } else {
        (mode(&metadata) & 0o022 != 0).then_some(WRITABLE)
    };
    match fault {
        Some(fault) => Err(refused(fault).into()),
        None => Ok(fs::read_to_string(path).map_err(named)?.into()),
    }
}

#[cfg(unix)]
fn mode(metadata: &fs::Metadata) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&metadata.permissions())
}

#[cfg(not(unix))]
fn mode(_: &fs::Metadata) -> u32 {
    0
}

const ID: ConfigError = ConfigError::new(
    "the client id is empty, or contains a line end or another control character: set only the id that \
     the server issued",
);
const SECRET: ConfigError = ConfigError::new(
    "the client secret is empty, or contains a line end or another control character: set only the \
     secret that the server issued",
);
/// RFC 7523, section 2.2.
#[cfg(feature = "private-key-jwt")]
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
#[cfg(feature = "private-key-jwt")]
const UNSIGNED: ConfigError = ConfigError::new("the private key cannot sign");
/// Fields of a form that prove something: RFC 6749, 7521, 8693.
const PROOFS: [&str; 6] = [
    "client_secret",
    "client_assertion",
    "assertion",
    "password",
    "subject_token",
    "actor_token",
];
/// Largest file of a secret. A secret of Keycloak has 32 characters.
const LARGEST: u64 = 16 * 1024;
const WRITABLE: &str = "its group or other users may write the secret's file: chmod 600 it";
