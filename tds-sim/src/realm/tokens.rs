//! Issued tokens, and whether they are valid.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING as ES256, EcdsaKeyPair, KeyPair as _},
};
use serde_json::{Value, json};

use crate::{error::Error, realm::key::Key};

/// Every token that was not revoked, by its text.
///
/// A token is valid if it is in this map, which only holds tokens as they were issued. Gateways
/// that introspect tokens work in the same way; signatures are not verified.
#[derive(Default)]
pub(crate) struct Tokens {
    issued: HashMap<Arc<str>, Arc<Issued>>,
    generation: u64,
    /// Signs tokens. Created with the first one.
    pub(super) signer: Option<EcdsaKeyPair>,
    /// Time of the last revocation in seconds since 1970; 0 before the first.
    pub(super) not_before: i64,
}

/// Record of a token.
#[derive(Debug)]
pub(crate) struct Issued {
    pub(crate) generation: u64,
    pub(crate) client: Arc<str>,
    pub(crate) roles: Vec<String>,
    expires: Duration,
}

// === impl Tokens ===

impl Tokens {
    /// Signs and records a token; its generation is one more than the last one's.
    pub(super) fn issue(
        &mut self,
        key: &Key,
        claims: &Value,
        now: Duration,
        expires_in: u64,
    ) -> Result<Arc<str>, Error> {
        let token: Arc<str> = self.sign(claims)?.into();
        self.generation += 1;
        let record = Issued {
            generation: self.generation,
            client: key.api_key().client_id,
            roles: key.roles.clone(),
            expires: now.saturating_add(Duration::from_secs(expires_in)),
        };
        self.issued.insert(Arc::clone(&token), Arc::new(record));
        Ok(token)
    }

    /// Signs claims.
    pub(super) fn sign(&mut self, claims: &Value) -> Result<String, Error> {
        let signer = self.signer()?;
        let header = json!({ "alg": "ES256", "typ": "JWT", "kid": key_id(signer) });
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature = signer.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = signature.map_err(unsigned)?;
        let signature = BASE64_URL_SAFE_NO_PAD.encode(signature);
        Ok(format!("{signed}.{signature}"))
    }

    /// Returns the public key, as the only member of a set of keys.
    pub(crate) fn key_set(&mut self) -> Result<Value, Error> {
        let signer = self.signer()?;
        // An uncompressed point: 4, then 32 bytes of each coordinate (RFC 5480, section 2.2).
        let point = signer.public_key().as_ref();
        let part = |from: usize| point.get(from..from + 32).unwrap_or_default();
        let part = |from| BASE64_URL_SAFE_NO_PAD.encode(part(from));
        let key = json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256",
            "kid": key_id(signer), "x": part(1), "y": part(33),
        });
        Ok(json!({ "keys": [key] }))
    }

    /// Returns the signing key. The first call creates it.
    fn signer(&mut self) -> Result<&EcdsaKeyPair, Error> {
        Ok(match &mut self.signer {
            Some(signer) => signer,
            none => {
                let rng = SystemRandom::new();
                let key = EcdsaKeyPair::generate_pkcs8(&ES256, &rng).map_err(unsigned)?;
                let key = EcdsaKeyPair::from_pkcs8(&ES256, key.as_ref(), &rng);
                none.insert(key.map_err(unsigned)?)
            }
        })
    }

    /// Forgets every token and the time of the last revocation.
    pub(crate) fn reset(&mut self) {
        self.issued.clear();
        (self.generation, self.not_before) = (0, 0);
    }

    /// Returns the record of a token that is valid at `now`.
    ///
    /// Contract, "Authentication" 5: once the time since its issue exceeds its lifetime, a token is
    /// no longer valid. So it is valid at the exact end.
    pub(crate) fn valid(&self, token: &str, now: Duration) -> Option<Arc<Issued>> {
        self.issued
            .get(token)
            .filter(|issued| now <= issued.expires)
            .cloned()
    }

    pub(super) fn revoke_all(&mut self, wall: i64) {
        self.issued.clear();
        self.not_before = wall;
    }
}

/// Returns a name for the signing key. Each process has another name, so clients that hold an
/// earlier key fetch the new one.
fn key_id(signer: &EcdsaKeyPair) -> String {
    let point = signer.public_key().as_ref();
    BASE64_URL_SAFE_NO_PAD.encode(point.get(1..10).unwrap_or_default())
}

fn unsigned(error: impl fmt::Display) -> Error {
    Error::failed("cannot sign a token", error.to_string())
}
