//! A signed assertion in place of a secret (RFC 7521, section 4.2; RFC 7523, section 2.2).

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header, crypto::aws_lc::DEFAULT_PROVIDER};
use serde::Serialize;

use crate::error::ConfigError;

#[cfg(test)]
mod tests;

/// Signs the assertions (JWTs) by which a client proves that it holds a private key.
///
/// Each token request carries a new assertion, which names the client and the token endpoint, expires
/// after half a minute, and has an id (`jti`) that is never used twice. It is dated half a minute back
/// (`iat`, `nbf`). So your clock and the server's may differ by half a minute, and no more. Your private key is never sent:
/// the server has the public key.
///
/// If the HTTP client is not ready within half a minute, the assertion has expired when it is sent, because
/// it is signed before the wait.
///
/// | key | algorithm |
/// |---|---|
/// | RSA of 2,048 bits or more | `RS256`, or `PS256` by [`pss`](Self::pss) |
/// | P-256, P-384 | `ES256`, `ES384` |
/// | Ed25519 | `EdDSA` |
///
/// `Debug` does not show the key.
///
/// # Examples
///
/// ```no_run
/// use tower_oidc_cc::{Assertion, Credentials};
///
/// let assertion = Assertion::from_pem(&std::fs::read("client-key.pem")?)?.key_id("2026-11");
/// // A server of FAPI wants PS256, and its issuer as the audience.
/// let assertion = assertion.pss()?.audience("https://sso.example.com/realms/timetable");
/// let credentials = Credentials::private_key_jwt("my-client", assertion)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Assertion {
    key: EncodingKey,
    /// Boxed, because it has room for every registered parameter.
    header: Box<Header>,
    audience: Option<String>,
}

/// Claims of an assertion (RFC 7523, section 3).
#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: &'a str,
    /// A string, not a list: Keycloak 26.5.0 answers "Multiple audiences not allowed" to a list.
    aud: &'a str,
    jti: String,
    iat: u64,
    /// Sent because Entra ID and AD FS want it.
    nbf: u64,
    exp: u64,
}

// === impl Assertion ===

impl Assertion {
    /// Takes the first private key of a PEM file, which may also contain certificates.
    ///
    /// The key's type determines the algorithm. Pass it in PKCS #8 form (`BEGIN PRIVATE KEY`); an RSA
    /// key may also be in PKCS #1 form.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no private key, or the first one has none of the types and forms above.
    pub fn from_pem(pem: &[u8]) -> Result<Self, ConfigError> {
        let blocks = pem::parse_many(pem).unwrap_or_default();
        let key = blocks.iter().find(|it| it.tag().ends_with("PRIVATE KEY"));
        let key = key.ok_or(NO_KEY)?;
        match key.tag() {
            "ENCRYPTED PRIVATE KEY" => return Err(ENCRYPTED),
            "EC PRIVATE KEY" => return Err(SEC1),
            _ => {}
        }
        let pem = pem::encode(key);
        let pem = pem.as_bytes();
        let keys = [
            (Algorithm::RS256, EncodingKey::from_rsa_pem(pem)),
            (Algorithm::ES256, EncodingKey::from_ec_pem(pem)),
            (Algorithm::ES384, EncodingKey::from_ec_pem(pem)),
            (Algorithm::EdDSA, EncodingKey::from_ed_pem(pem)),
        ];
        let assertions = keys.into_iter().filter_map(|(algorithm, key)| {
            Some(Self {
                key: key.ok()?,
                header: Box::new(Header::new(algorithm)),
                audience: None,
            })
        });
        // Signs once, so that a key that cannot sign is detected before your first call.
        let mut signing = assertions.filter(|assertion| assertion.signature(b"").is_some());
        signing.next().ok_or(UNUSABLE)
    }

    /// Sets the key id (`kid`) in the header of each assertion, for servers that hold several of your keys.
    #[must_use]
    pub fn key_id(mut self, key_id: impl Into<String>) -> Self {
        self.header.kid = Some(key_id.into());
        self
    }

    /// Signs with `PS256` in place of `RS256`, for servers that want it, such as those of FAPI and Entra ID.
    ///
    /// # Errors
    ///
    /// Returns an error if the key is not an RSA key.
    pub fn pss(mut self) -> Result<Self, ConfigError> {
        self.header.alg = Algorithm::PS256;
        self.signature(b"").map(|_| self).ok_or(NOT_RSA)
    }

    /// Sets the audience of each assertion; by default the address of the token endpoint, without its
    /// query.
    ///
    /// Set it if your server follows the successor of RFC 7523 and requires its issuer as the audience;
    /// Keycloak 26.5.0 accepts both.
    #[must_use]
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        self.audience = Some(audience.into());
        self
    }

    /// Signs a new assertion at `now`; `None` if the key cannot sign.
    pub(crate) fn sign_at(
        &self,
        now: SystemTime,
        client_id: &str,
        endpoint: &str,
    ) -> Option<String> {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let claims = Claims {
            iss: client_id,
            sub: client_id,
            aud: self.audience.as_deref().unwrap_or(endpoint),
            // The time is part of it, because processes that are restored from one snapshot draw equal numbers.
            jti: format!("{:x}-{:032x}", now.as_nanos(), fastrand::u128(..)),
            iat: now.as_secs().saturating_sub(BACK),
            nbf: now.as_secs().saturating_sub(BACK),
            exp: now.as_secs() + LIFE,
        };
        let [header, claims] = [
            serde_json::to_vec(&self.header),
            serde_json::to_vec(&claims),
        ];
        let encode = |part: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(part);
        let message = format!("{}.{}", encode(&header.ok()?), encode(&claims.ok()?));
        let signature = self.signature(message.as_bytes())?;
        Some(format!("{message}.{}", encode(&signature)))
    }

    /// Signs with aws-lc. `jsonwebtoken::encode` is not used, because it panics in a program that
    /// enables two of its backends.
    fn signature(&self, message: &[u8]) -> Option<Vec<u8>> {
        let signer = (DEFAULT_PROVIDER.signer_factory)(&self.header.alg, &self.key).ok()?;
        signer.try_sign(message).ok()
    }
}

impl fmt::Debug for Assertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assertion")
            .field("algorithm", &self.header.alg)
            .field("key_id", &self.header.kid)
            .field("audience", &self.audience)
            .finish_non_exhaustive()
    }
}

const NO_KEY: ConfigError = ConfigError::new(
    "there is no private key in PEM: give the whole file, with its BEGIN and END lines",
);
const ENCRYPTED: ConfigError =
    ConfigError::new("the private key is encrypted: decrypt it with `openssl pkcs8`");
const SEC1: ConfigError = ConfigError::new(
    "the private key is in SEC 1 form: convert it with `openssl pkcs8 -topk8 -nocrypt`",
);
const UNUSABLE: ConfigError = ConfigError::new(
    "the private key cannot sign: it is damaged, is an RSA key of less than 2048 bits, or is not an RSA, \
     P-256, P-384 or Ed25519 key",
);
const NOT_RSA: ConfigError = ConfigError::new("only an RSA key signs with PS256");
/// Seconds by which assertions are dated back, in case this clock is ahead of the server's. It is not more, because
/// Keycloak 26.5.0 refuses an assertion whose `iat` is more than 60 s old, which is its default limit ("Token was issued
/// too far in the past to be used now").
const BACK: u64 = 30;
/// Life of an assertion in seconds: time for a slow network, and for clocks that differ. It is not a minute, because a
/// server that allows a minute, and whose clock is a second behind, would refuse it.
const LIFE: u64 = 30;
