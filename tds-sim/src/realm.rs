//! Realm `ServiceConnect`: members, their keys and roles, and the issued tokens.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Value, json};

use crate::{
    clock::Clock,
    config::Config,
    error::{Error, Kind},
};

mod key;
mod tokens;

pub use self::key::ApiKey;
pub(crate) use self::tokens::Issued;
use self::{key::Key, tokens::Tokens};

/// State of the identity provider.
pub(crate) struct Realm {
    /// Lifetime of new tokens in seconds.
    pub(crate) expires_in: u64,
    pub(crate) tokens: Tokens,
    clock: Arc<Clock>,
    keys: HashMap<Arc<str>, Key>,
    roles: Vec<String>,
    rng: fastrand::Rng,
}

// === impl Realm ===

impl Realm {
    /// Creates a realm with one member, who holds one key.
    pub(crate) fn new(clock: Arc<Clock>, config: &Config) -> (Self, ApiKey) {
        let mut realm = Self {
            expires_in: config.expires_in,
            tokens: Tokens::default(),
            clock,
            keys: HashMap::new(),
            roles: config.roles.clone(),
            rng: fastrand::Rng::new(),
        };
        let api_key = realm.reset_keys(config);
        (realm, api_key)
    }

    /// Leaves only the first key, as it was at the start, and returns it.
    pub(crate) fn reset_keys(&mut self, config: &Config) -> ApiKey {
        self.rng = fastrand::Rng::with_seed(config.seed);
        let key = Key::new(MEMBER, config.roles.clone(), &mut self.rng);
        let api_key = key.api_key();
        self.keys = HashMap::from([(Arc::clone(&api_key.client_id), key)]);
        api_key
    }

    /// Adds a key to a member, who is created if unknown, unless the member holds three.
    pub(crate) fn add_key(&mut self, member: &str) -> Result<ApiKey, Error> {
        let held = self.keys.values().filter(|key| key.member == member);
        if held.count() >= KEYS_PER_MEMBER {
            return Err(Kind::KeyLimit(member.to_owned()).into());
        }
        let key = Key::new(member, self.roles.clone(), &mut self.rng);
        let api_key = key.api_key();
        self.keys.insert(Arc::clone(&api_key.client_id), key);
        Ok(api_key)
    }

    /// Gives a key a new secret; the old one stops working at once.
    pub(crate) fn rotate_secret(&mut self, client: &str) -> Result<ApiKey, Error> {
        let key = self.keys.get_mut(client).ok_or(Kind::UnknownClient)?;
        key.rotate(&mut self.rng);
        Ok(key.api_key())
    }

    pub(crate) fn key(&self, client: &str) -> Option<&Key> {
        self.keys.get(client)
    }

    pub(crate) fn key_mut(&mut self, client: &str) -> Result<&mut Key, Error> {
        Ok(self.keys.get_mut(client).ok_or(Kind::UnknownClient)?)
    }

    /// Issues a token to an authenticated key, and returns the reply with it.
    pub(crate) fn grant(
        &mut self,
        client: &str,
        scope: &str,
        issuer: &str,
    ) -> Result<Value, Error> {
        let key = self.keys.get(client).ok_or(Kind::UnknownClient)?;
        let now = self.clock.now();
        let wall = self.clock.wall_at(now);
        let mut claims = key.claims(wall, self.expires_in, scope, issuer, &mut self.rng);
        let token = self.tokens.issue(key, &claims, now, self.expires_in)?;
        let mut reply = json!({
            "access_token": &*token,
            "expires_in": self.expires_in,
            "refresh_expires_in": 0,
            "token_type": "Bearer",
            "not-before-policy": self.tokens.not_before,
            "scope": scope,
        });
        if scope.split(' ').any(|name| name == "openid") {
            claims["typ"] = json!("ID");
            claims["aud"] = json!(client);
            reply["id_token"] = json!(self.tokens.sign(&claims)?);
        }
        Ok(reply)
    }

    /// Revokes every token. Later replies have the time in `not-before-policy`.
    pub(crate) fn revoke_all(&mut self) {
        let wall = self.clock.wall_at(self.clock.now());
        self.tokens.revoke_all(wall);
    }
}

/// Member that exists from the start.
const MEMBER: &str = "demo";

/// Contract, "Limits": API keys per member.
const KEYS_PER_MEMBER: usize = 3;

#[cfg(test)]
mod tests;
