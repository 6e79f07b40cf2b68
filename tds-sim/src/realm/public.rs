//! The public half of a client's key, and what it checks (RFC 7523, section 3).

use std::fmt;

use jsonwebtoken::{
    Algorithm, DecodingKey, Validation, dangerous::insecure_decode, decode, decode_header,
};
use serde::Deserialize;
use serde_json::Value;

use crate::error::Error;

/// What checks the statements of a client.
#[derive(Clone)]
pub(crate) struct PublicKey(DecodingKey);

/// What a statement says, checked or not.
#[derive(Debug, Deserialize)]
pub(crate) struct Statement {
    pub(crate) iss: Option<String>,
    pub(crate) sub: Option<String>,
    pub(crate) aud: Option<Value>,
    pub(crate) jti: Option<String>,
    pub(crate) iat: Option<i64>,
    pub(crate) nbf: Option<i64>,
    pub(crate) exp: Option<i64>,
}

/// Why a statement is not one of the key's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsigned {
    /// It says that it is signed by another algorithm than RS256.
    Algorithm,
    /// It names its key, which has no name here.
    UnknownKey,
    /// The private half did not sign it.
    Signature,
}

// === impl PublicKey ===

impl PublicKey {
    pub(crate) fn from_pem(pem: &str) -> Result<Self, Error> {
        DecodingKey::from_rsa_pem(pem.as_bytes())
            .map(Self)
            .map_err(Error::signing)
    }

    /// Whether the private half has signed `text`.
    pub(crate) fn check(&self, text: &str) -> Result<(), Unsigned> {
        let header = decode_header(text).map_err(|_| Unsigned::Algorithm)?;
        if header.alg != Algorithm::RS256 {
            return Err(Unsigned::Algorithm);
        }
        if header.kid.is_some() {
            return Err(Unsigned::UnknownKey);
        }
        let mut validation = Validation::new(Algorithm::RS256);
        // The signature alone: what it says is judged elsewhere.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;
        match decode::<Value>(text, &self.0, &validation) {
            Ok(_) => Ok(()),
            Err(_) => Err(Unsigned::Signature),
        }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicKey")
    }
}

// === impl Statement ===

impl Statement {
    /// What `text` says, whoever has signed it.
    pub(crate) fn read(text: &str) -> Option<Self> {
        insecure_decode(text).ok().map(|data| data.claims)
    }
}
