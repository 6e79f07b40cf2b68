//! A signed statement in place of a secret (RFC 7521, section 4.2; RFC 7523, section 2.2).

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use jsonwebtoken::{Algorithm, EncodingKey, Header, crypto::aws_lc::DEFAULT_PROVIDER};
use pkcs8::PrivateKeyInfo;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::{ConfigError, wiped::Wiped};

#[cfg(test)]
mod tests;

/// Signs the statements by which a client proves that it holds a private key.
///
/// Each token request carries a new one: it names the client, is meant for the token endpoint
/// alone, lives a minute, and has a number that is never used twice, since servers accept each
/// number once. The key stays here; the server knows its public half.
///
/// `Debug` does not show the key, and its memory is wiped on drop; what signs leaves numbers of its
/// own behind.
///
/// # Examples
///
/// ```no_run
/// use tower_oidc_cc::{Assertion, Credentials};
///
/// let assertion = Assertion::rs256(&std::fs::read("client-key.pem")?)?.key_id("2026-11");
/// let credentials = Credentials::private_key_jwt("my-client", assertion)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Assertion {
    key: EncodingKey,
    algorithm: Algorithm,
    key_id: Option<String>,
    audience: Option<String>,
}

/// RFC 7523, section 3.
#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: &'a str,
    /// One text and no list: Keycloak 26.5.0 answers "Multiple audiences not allowed" to a list.
    aud: &'a str,
    jti: String,
    iat: u64,
    exp: u64,
}

// === impl Assertion ===

impl Assertion {
    /// Takes an RSA key that signs with PKCS #1 v1.5 and SHA-256, in PEM.
    ///
    /// # Errors
    ///
    /// If the text is no PEM of an RSA private key: PKCS #1 and PKCS #8 are read, encrypted keys
    /// are not.
    pub fn rs256(pem: &[u8]) -> Result<Self, ConfigError> {
        Self::new(rsa(pem), Algorithm::RS256, NOT_RSA)
    }

    /// Takes an RSA key that signs with PSS and SHA-256, in PEM.
    ///
    /// # Errors
    ///
    /// Those of [`rs256`](Self::rs256).
    pub fn ps256(pem: &[u8]) -> Result<Self, ConfigError> {
        Self::new(rsa(pem), Algorithm::PS256, NOT_RSA)
    }

    /// Takes an elliptic-curve key (P-256) that signs with ECDSA and SHA-256, in PEM.
    ///
    /// # Errors
    ///
    /// If the text is no PEM of such a key in PKCS #8 (`BEGIN PRIVATE KEY`); `openssl pkcs8 -topk8
    /// -nocrypt` makes one from other forms.
    pub fn es256(pem: &[u8]) -> Result<Self, ConfigError> {
        Self::new(ec(pem), Algorithm::ES256, NOT_EC)
    }

    /// Names the key in the header of each statement (`kid`), for servers that know several.
    #[must_use]
    pub fn key_id(mut self, key_id: impl Into<String>) -> Self {
        self.key_id = Some(key_id.into());
        self
    }

    /// Replaces the address of the token endpoint as the audience of each statement.
    ///
    /// That is the address as it was configured, without its query and a default port.
    /// Servers that follow the successor of RFC 7523 want their issuer here. Keycloak 26.5.0 takes
    /// either.
    #[must_use]
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        self.audience = Some(audience.into());
        self
    }

    fn new(
        key: Option<EncodingKey>,
        algorithm: Algorithm,
        reason: &'static str,
    ) -> Result<Self, ConfigError> {
        let assertion = Self {
            key: key.ok_or_else(|| ConfigError::new(reason))?,
            algorithm,
            key_id: None,
            audience: None,
        };
        // A key that cannot sign is found here, and not by the first call of the day.
        match assertion.signature(b"") {
            Some(_) => Ok(assertion),
            None => Err(ConfigError::new(reason)),
        }
    }

    /// Signs a new statement at `now`, or returns none if the key cannot.
    pub(crate) fn sign_at(
        &self,
        now: SystemTime,
        client_id: &str,
        endpoint: &str,
    ) -> Option<Zeroizing<String>> {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let claims = Claims {
            iss: client_id,
            sub: client_id,
            aud: self.audience.as_deref().unwrap_or(endpoint),
            // The time stands in it for those who are restored from one snapshot, and so draw the
            // same number.
            jti: format!("{:x}-{:032x}", now.as_nanos(), fastrand::u128(..)),
            iat: now.as_secs(),
            exp: now.as_secs() + LIFE,
        };
        let mut header = Header::new(self.algorithm);
        header.kid.clone_from(&self.key_id);
        let mut statement = Wiped::default();
        push_part(&mut statement, &serde_json::to_vec(&header).ok()?)?;
        statement.push(b".");
        push_part(&mut statement, &serde_json::to_vec(&claims).ok()?)?;
        // Up to here it is no secret: the signature is what makes it worth stealing.
        let signature = Zeroizing::new(self.signature(statement.as_slice())?);
        statement.push(b".");
        push_part(&mut statement, &signature)?;
        statement.into_string()
    }

    /// By this provider and not by the one of the process: `jsonwebtoken::encode` panics in a
    /// program in which somebody else has turned on another one of its backends, too.
    fn signature(&self, message: &[u8]) -> Option<Vec<u8>> {
        let signer = (DEFAULT_PROVIDER.signer_factory)(&self.algorithm, &self.key).ok()?;
        signer.try_sign(message).ok()
    }
}

impl fmt::Debug for Assertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assertion")
            .field("algorithm", &self.algorithm)
            .field("key_id", &self.key_id)
            .field("audience", &self.audience)
            .finish_non_exhaustive()
    }
}

fn push_part(statement: &mut Wiped, part: &[u8]) -> Option<()> {
    let mut digits = Zeroizing::new(vec![0; base64::encoded_len(part.len(), false)?]);
    BASE64_URL_SAFE_NO_PAD
        .encode_slice(part, &mut digits)
        .ok()?;
    statement.push(&digits);
    Some(())
}

// By hand: what parses PEM elsewhere, in jsonwebtoken for one, frees its copies of the key as they
// are.

/// An RSA key, in PKCS #1 or PKCS #8. Whether it is one turns out when it signs.
fn rsa(pem: &[u8]) -> Option<EncodingKey> {
    let (label, der) = first(pem)?;
    match label {
        b"RSA PRIVATE KEY" => Some(EncodingKey::from_rsa_der(&der)),
        b"PRIVATE KEY" => {
            let key = PrivateKeyInfo::try_from(der.as_slice()).ok()?;
            Some(EncodingKey::from_rsa_der(key.private_key))
        }
        _ => None,
    }
}

/// A key on an elliptic curve, in PKCS #8. Whether it is one turns out when it signs.
fn ec(pem: &[u8]) -> Option<EncodingKey> {
    let (label, der) = first(pem)?;
    (label == b"PRIVATE KEY").then(|| EncodingKey::from_ec_der(&der))
}

/// The label and the content of the first block of a PEM file (RFC 7468, section 3). Whatever
/// stands before it or after it is not looked at.
fn first(pem: &[u8]) -> Option<(&[u8], Zeroizing<Vec<u8>>)> {
    let (_, rest) = split(pem, b"-----BEGIN ")?;
    let (label, rest) = split(rest, b"-----")?;
    let (content, rest) = split(rest, b"-----END ")?;
    let (end, _) = split(rest, b"-----")?;
    if end != label {
        return None;
    }
    let mut digits = Wiped::with_capacity(content.len());
    for word in content.split(u8::is_ascii_whitespace) {
        digits.push(word);
    }
    let digits = digits.as_slice();
    let mut der = Zeroizing::new(vec![0; base64::decoded_len_estimate(digits.len())]);
    let length = BASE64_STANDARD.decode_slice(digits, &mut der).ok()?;
    der.truncate(length);
    Some((label, der))
}

fn split<'a>(text: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(mark.len()).position(|w| w == mark)?;
    let (before, rest) = text.split_at_checked(at)?;
    Some((before, rest.strip_prefix(mark)?))
}

const NOT_RSA: &str = "the private key is no RSA key in unencrypted PEM: give the whole file, with \
     its BEGIN and END lines";
const NOT_EC: &str = "the private key is no P-256 key in unencrypted PKCS #8 PEM: convert it with \
     `openssl pkcs8 -topk8 -nocrypt`";
/// A minute: time for one request over a slow network, and for clocks that differ by less. Longer
/// helps only whoever steals a statement on its way.
const LIFE: u64 = 60;
