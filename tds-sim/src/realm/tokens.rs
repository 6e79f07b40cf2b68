//! The issued tokens, and whether they are valid.

use std::{collections::HashMap, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::{
    error::Unspecified,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING as ES256, EcdsaKeyPair},
};
use serde_json::{Value, json};

use crate::{error::Error, realm::Key};

/// Every token that was not revoked, by its text.
///
/// A token is looked up, not verified: only an unchanged token that was issued here is valid. A
/// gateway that introspects tokens does the same.
#[derive(Default)]
pub(crate) struct Tokens {
    issued: HashMap<Arc<str>, Arc<Issued>>,
    generation: u64,
    /// Signs tokens. Created with the first one.
    pub(super) signer: Option<EcdsaKeyPair>,
    /// The time of the last revocation in seconds since 1970; 0 before the first.
    not_before: i64,
}

/// A token's record.
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

    /// Signs claims. The first call creates the key.
    pub(super) fn sign(&mut self, claims: &Value) -> Result<String, Error> {
        let no_key = |_: Unspecified| Error::failed("cannot sign a token", "no randomness");
        let rng = SystemRandom::new();
        let signer = match &mut self.signer {
            Some(signer) => signer,
            none => {
                let key = EcdsaKeyPair::generate_pkcs8(&ES256, &rng).map_err(no_key)?;
                let key = EcdsaKeyPair::from_pkcs8(&ES256, key.as_ref(), &rng);
                none.insert(
                    key.map_err(|error| Error::failed("cannot sign a token", error.to_string()))?,
                )
            }
        };
        let header = json!({ "alg": "ES256", "typ": "JWT", "kid": "tds-sim" });
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature = signer.sign(&rng, signed.as_bytes()).map_err(no_key)?;
        let signature = BASE64_URL_SAFE_NO_PAD.encode(signature);
        Ok(format!("{signed}.{signature}"))
    }

    /// Returns the record of a token that is valid at `now`.
    ///
    /// Contract, "Authentication" 5: a token is no longer valid when the time since its issue
    /// exceeds its lifetime. So it is valid at the exact end.
    pub(super) fn valid(&self, token: &str, now: Duration) -> Option<Arc<Issued>> {
        self.issued
            .get(token)
            .filter(|issued| now <= issued.expires)
            .cloned()
    }

    pub(super) fn revoke_all(&mut self, wall: i64) {
        self.issued.clear();
        self.not_before = wall;
    }

    pub(super) fn not_before(&self) -> i64 {
        self.not_before
    }
}
