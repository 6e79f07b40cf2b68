//! The tokens issued so far, and which of them are still good.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::{
    error::Error,
    realm::{Key, claims::Claims, signer::Signer},
};

/// Every token that may still be valid, by its text.
///
/// A token is looked up, not verified: only what was issued here, unchanged to the last letter, is
/// valid. That is what introspection tells a gateway, and it costs a million calls no signature
/// check each.
#[derive(Debug)]
pub(crate) struct Tokens {
    issued: HashMap<Arc<str>, Arc<Issued>>,
    generation: u64,
    /// Which key signs; what another one signed is no longer valid.
    signer: usize,
    /// Since when tokens are valid, in seconds of the wall clock; 0 if that never changed.
    not_before: i64,
    /// How many tokens may be kept before the expired ones are swept out.
    pub(super) sweep_at: usize,
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
    pub(super) fn new() -> Self {
        Self {
            issued: HashMap::new(),
            generation: 0,
            signer: 0,
            not_before: 0,
            sweep_at: SWEEP,
        }
    }

    /// Signs and records a token; its generation is one more than the last one's.
    pub(super) fn issue(
        &mut self,
        key: &Key,
        claims: &Claims,
        now: Duration,
        expires_in: u64,
    ) -> Result<Arc<str>, Error> {
        let token: Arc<str> = Signer::nth(self.signer)?.sign(claims)?.into();
        self.generation = self.generation.saturating_add(1);
        let record = Issued {
            generation: self.generation,
            client: key.api_key().shared_id(),
            roles: key.roles.clone(),
            expires: now.saturating_add(Duration::from_secs(expires_in)),
        };
        if self.issued.len() >= self.sweep_at {
            self.issued.retain(|_, issued| now <= issued.expires);
            self.sweep_at = self.issued.len().saturating_mul(2).max(SWEEP);
        }
        self.issued.insert(Arc::clone(&token), Arc::new(record));
        Ok(token)
    }

    /// Signs what is no access token.
    pub(super) fn sign(&self, claims: &Claims) -> Result<String, Error> {
        Signer::nth(self.signer)?.sign(claims)
    }

    /// The record of a token that is valid at `now`.
    ///
    /// Contract, "Authentication" 5: a token is no longer valid when the time since its issue
    /// exceeds its lifetime, so at its very end it still is.
    pub(super) fn valid(&self, token: &str, now: Duration) -> Option<Arc<Issued>> {
        self.issued
            .get(token)
            .filter(|issued| now <= issued.expires)
            .cloned()
    }

    /// Forgets one token.
    pub(crate) fn revoke(&mut self, token: &str) {
        self.issued.remove(token);
    }

    pub(super) fn revoke_all(&mut self, wall: i64) {
        self.issued.clear();
        self.not_before = wall;
    }

    /// Signs with a new key from here on; what the old ones signed is no longer valid.
    pub(crate) fn rotate_signing_key(&mut self) {
        self.signer = self.signer.saturating_add(1);
        self.issued.clear();
    }

    pub(super) fn not_before(&self) -> i64 {
        self.not_before
    }

    /// The public half of the signing key as PEM.
    pub(crate) fn public_key(&self) -> Result<String, Error> {
        Ok(Signer::nth(self.signer)?.public().to_owned())
    }
}

/// Below so many tokens sweeping is not worth it.
const SWEEP: usize = 4096;
