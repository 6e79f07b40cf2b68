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
use pkcs8::{ObjectIdentifier, PrivateKeyInfo};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::{ConfigError, wiped::Wiped};

#[cfg(test)]
mod tests;

/// Signs the statements by which a client proves that it holds a private key.
///
/// Each token request carries a new one: it names the client and the token endpoint, lives a
/// minute, and has a number that is never used twice. The key stays here; the server has its public
/// half.
///
/// All constructors read PEM: PKCS #8 (`BEGIN PRIVATE KEY`), and PKCS #1 for RSA. The file may hold
/// certificates as well. Encrypted keys are refused.
///
/// `Debug` does not show the key, and its memory is wiped on drop. The signature library leaves
/// numbers of its own behind.
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

/// A private key that was read, by its type.
enum Key {
    /// PKCS #1.
    Rsa(Zeroizing<Vec<u8>>),
    /// PKCS #8, each.
    P256(Zeroizing<Vec<u8>>),
    P384(Zeroizing<Vec<u8>>),
    Ed25519(Zeroizing<Vec<u8>>),
}

// === impl Assertion ===

impl Assertion {
    /// Takes an RSA key that signs with PKCS #1 v1.5 and SHA-256.
    ///
    /// # Errors
    ///
    /// If the text holds no such key, or one of less than 2,048 bits. The error names the fault.
    pub fn rs256(pem: &[u8]) -> Result<Self, ConfigError> {
        Self::new(pem, Algorithm::RS256)
    }

    /// Takes an RSA key that signs with PSS and SHA-256.
    ///
    /// # Errors
    ///
    /// As for [`rs256`](Self::rs256).
    pub fn ps256(pem: &[u8]) -> Result<Self, ConfigError> {
        Self::new(pem, Algorithm::PS256)
    }

    /// Takes an elliptic-curve key (P-256) that signs with ECDSA and SHA-256.
    ///
    /// # Errors
    ///
    /// If the text holds no such key. The error names the fault.
    pub fn es256(pem: &[u8]) -> Result<Self, ConfigError> {
        Self::new(pem, Algorithm::ES256)
    }

    /// Takes an elliptic-curve key (P-384) that signs with ECDSA and SHA-384.
    ///
    /// # Errors
    ///
    /// As for [`es256`](Self::es256).
    pub fn es384(pem: &[u8]) -> Result<Self, ConfigError> {
        Self::new(pem, Algorithm::ES384)
    }

    /// Takes an Ed25519 key (`EdDSA` of RFC 8037).
    ///
    /// # Errors
    ///
    /// As for [`es256`](Self::es256).
    pub fn ed25519(pem: &[u8]) -> Result<Self, ConfigError> {
        Self::new(pem, Algorithm::EdDSA)
    }

    /// Names the key in the header of each statement (`kid`), for servers that hold several.
    #[must_use]
    pub fn key_id(mut self, key_id: impl Into<String>) -> Self {
        self.key_id = Some(key_id.into());
        self
    }

    /// Replaces the address of the token endpoint as the audience of each statement.
    ///
    /// The default is the address as configured, without its query and a default port. Servers that
    /// follow the successor of RFC 7523 want their issuer. Keycloak 26.5.0 takes either.
    #[must_use]
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        self.audience = Some(audience.into());
        self
    }

    fn new(pem: &[u8], algorithm: Algorithm) -> Result<Self, ConfigError> {
        let key = Key::read(pem)?.encoding(algorithm)?;
        let assertion = Self {
            key,
            algorithm,
            key_id: None,
            audience: None,
        };
        // A key that cannot sign is found here, and not by the first call of the day.
        match assertion.signature(b"") {
            Some(_) => Ok(assertion),
            None => Err(ConfigError::new(
                "the private key makes no signature: its content is damaged, or it is an RSA key of \
                 less than 2048 bits",
            )),
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
            // With the time, because processes restored from one snapshot draw the same number.
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
        let signature = Zeroizing::new(self.signature(statement.as_slice())?);
        statement.push(b".");
        push_part(&mut statement, &signature)?;
        statement.into_string()
    }

    /// Signs by this provider. `jsonwebtoken::encode` panics in a program that enables two of its
    /// backends.
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

// === impl Key ===

// By hand, because other parsers of PEM free their copies of the key without wiping them.
impl Key {
    /// Reads the first private key of a PEM file, past certificates and parameters.
    fn read(pem: &[u8]) -> Result<Self, ConfigError> {
        let mut rest = pem;
        while let Some((label, content, after)) = block(rest) {
            match label {
                b"RSA PRIVATE KEY" => return decoded(content).map(Self::Rsa).ok_or(DAMAGED),
                b"PRIVATE KEY" => return Self::of_pkcs8(decoded(content).ok_or(DAMAGED)?),
                b"EC PRIVATE KEY" => {
                    return Err(ConfigError::new(
                        "the private key is in SEC 1 form: convert it with `openssl pkcs8 -topk8 \
                         -nocrypt`",
                    ));
                }
                b"ENCRYPTED PRIVATE KEY" => {
                    return Err(ConfigError::new(
                        "the private key is encrypted: decrypt it with `openssl pkcs8`",
                    ));
                }
                _ => rest = after,
            }
        }
        Err(ConfigError::new(
            "there is no private key in PEM: give the whole file, with its BEGIN and END lines",
        ))
    }

    fn of_pkcs8(der: Zeroizing<Vec<u8>>) -> Result<Self, ConfigError> {
        let (algorithm, curve, inner) = {
            let key = PrivateKeyInfo::try_from(der.as_slice()).map_err(|_| DAMAGED)?;
            let curve = key.algorithm.parameters_oid().ok();
            (
                key.algorithm.oid,
                curve,
                Zeroizing::new(key.private_key.to_vec()),
            )
        };
        match (algorithm, curve) {
            (RSA, _) => Ok(Self::Rsa(inner)),
            (EC, Some(P256)) => Ok(Self::P256(der)),
            (EC, Some(P384)) => Ok(Self::P384(der)),
            (ED25519, _) => Ok(Self::Ed25519(der)),
            _ => Err(ConfigError::new(
                "the type of the private key is not supported: use RSA, P-256, P-384 or Ed25519",
            )),
        }
    }

    fn encoding(self, algorithm: Algorithm) -> Result<EncodingKey, ConfigError> {
        Ok(match (self, algorithm) {
            (Self::Rsa(der), Algorithm::RS256 | Algorithm::PS256) => {
                EncodingKey::from_rsa_der(&der)
            }
            (Self::P256(der), Algorithm::ES256) | (Self::P384(der), Algorithm::ES384) => {
                EncodingKey::from_ec_der(&der)
            }
            (Self::Ed25519(der), Algorithm::EdDSA) => EncodingKey::from_ed_der(&der),
            (key, _) => return Err(ConfigError::new(key.misfit())),
        })
    }

    /// The text for a key that does not fit the algorithm.
    fn misfit(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "the private key is an RSA key: use `rs256` or `ps256`",
            Self::P256(_) => "the private key is a P-256 key: use `es256`",
            Self::P384(_) => "the private key is a P-384 key: use `es384`",
            Self::Ed25519(_) => "the private key is an Ed25519 key: use `ed25519`",
        }
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

/// The label and the content of the first block of a PEM file (RFC 7468, section 3), and the rest.
fn block(pem: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (_, rest) = split(pem, b"-----BEGIN ")?;
    let (label, rest) = split(rest, b"-----")?;
    let (content, rest) = split(rest, b"-----END ")?;
    let (end, rest) = split(rest, b"-----")?;
    (end == label).then_some((label, content, rest))
}

fn decoded(content: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut digits = Wiped::with_capacity(content.len());
    for word in content.split(u8::is_ascii_whitespace) {
        digits.push(word);
    }
    let digits = digits.as_slice();
    let mut der = Zeroizing::new(vec![0; base64::decoded_len_estimate(digits.len())]);
    let length = BASE64_STANDARD.decode_slice(digits, &mut der).ok()?;
    der.truncate(length);
    Some(der)
}

fn split<'a>(text: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(mark.len()).position(|w| w == mark)?;
    let (before, rest) = text.split_at_checked(at)?;
    Some((before, rest.strip_prefix(mark)?))
}

const DAMAGED: ConfigError =
    ConfigError::new("the private key is damaged: give the whole file as it was made");
/// RFC 8017, appendix A.1; RFC 5480, section 2.1; RFC 8410, section 3.
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
/// Time for one request over a slow network, and for clocks that differ by less than a minute.
const LIFE: u64 = 60;
