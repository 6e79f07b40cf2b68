//! The realm `ServiceConnect`: members, their keys, the tokens issued, and who may do what.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use crate::{clock::Clock, config::Config, error::Error};

mod claims;
mod key;
mod public;
mod signer;
mod tokens;

pub use self::key::ApiKey;
pub(crate) use self::{
    key::Key,
    public::{PublicKey, Statement, Unsigned},
    tokens::{Issued, Tokens},
};

/// What the identity provider knows.
#[derive(Debug)]
pub(crate) struct Realm {
    pub(crate) enabled: bool,
    /// Lifetime of new tokens in seconds.
    pub(crate) expires_in: u64,
    pub(crate) tokens: Tokens,
    clock: Arc<Clock>,
    /// How many keys each member holds.
    members: BTreeMap<String, usize>,
    keys: HashMap<Arc<str>, Key>,
    roles: Vec<String>,
    rng: fastrand::Rng,
    /// The numbers of the statements that have been accepted, and until when each was good.
    numbers: HashMap<String, i64>,
}

/// A token just issued, as its reply needs it.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) token: Arc<str>,
    /// Who the client is, for those who ask for `openid`.
    pub(crate) id_token: Option<String>,
    pub(crate) expires_in: u64,
    pub(crate) not_before: i64,
    pub(crate) scope: String,
}

// === impl Realm ===

impl Realm {
    /// A realm with one member, who holds one key.
    pub(crate) fn new(clock: Arc<Clock>, config: &Config) -> (Self, ApiKey) {
        // Somebody else in this program may have turned on another of its backends, and then it
        // has to be told which. If it was told before, that one will do.
        let backend = &jsonwebtoken::crypto::rust_crypto::DEFAULT_PROVIDER;
        backend.install_default().ok();
        let mut rng = fastrand::Rng::with_seed(config.seed);
        let key = Key::new(MEMBER, config.roles.clone(), &mut rng);
        let api_key = key.api_key();
        let realm = Self {
            enabled: true,
            expires_in: config.expires_in,
            tokens: Tokens::new(),
            clock,
            members: BTreeMap::from([(MEMBER.to_owned(), 1)]),
            keys: HashMap::from([(api_key.shared_id(), key)]),
            roles: config.roles.clone(),
            rng,
            numbers: HashMap::new(),
        };
        (realm, api_key)
    }

    /// Adds a member without keys; one that exists stays as it is.
    pub(crate) fn add_member(&mut self, name: &str) {
        self.members.entry(name.to_owned()).or_insert(0);
    }

    /// Gives a member another key, unless it holds three.
    pub(crate) fn add_key(&mut self, member: &str) -> Result<ApiKey, Error> {
        let held = self
            .members
            .get_mut(member)
            .ok_or_else(|| Error::unknown_member(member))?;
        if *held >= KEYS_PER_MEMBER {
            return Err(Error::key_limit(member));
        }
        *held = held.saturating_add(1);
        let key = Key::new(member, self.roles.clone(), &mut self.rng);
        let api_key = key.api_key();
        self.keys.insert(api_key.shared_id(), key);
        Ok(api_key)
    }

    /// Takes a key away from its member.
    pub(crate) fn delete_key(&mut self, client: &str) -> Result<(), Error> {
        let key = self.keys.remove(client).ok_or_else(Error::unknown_client)?;
        if let Some(held) = self.members.get_mut(key.member()) {
            *held = held.saturating_sub(1);
        }
        Ok(())
    }

    /// Gives a key a new secret; the old one stops working at once.
    pub(crate) fn rotate_secret(&mut self, client: &str) -> Result<ApiKey, Error> {
        let key = self
            .keys
            .get_mut(client)
            .ok_or_else(Error::unknown_client)?;
        key.rotate(&mut self.rng);
        Ok(key.api_key())
    }

    pub(crate) fn key(&self, client: &str) -> Option<&Key> {
        self.keys.get(client)
    }

    pub(crate) fn key_mut(&mut self, client: &str) -> Result<&mut Key, Error> {
        self.keys.get_mut(client).ok_or_else(Error::unknown_client)
    }

    /// Issues a token to a key that has proved itself.
    pub(crate) fn grant(&mut self, client: &str, scope: &str) -> Result<Grant, Error> {
        let key = self.keys.get(client).ok_or_else(Error::unknown_client)?;
        let now = self.clock.now();
        let wall = self.clock.wall_at(now);
        let claims = key.claims(wall, self.expires_in, scope, &mut self.rng);
        let token = self.tokens.issue(key, &claims, now, self.expires_in)?;
        let id_token = if scope.split(' ').any(|name| name == "openid") {
            Some(self.tokens.sign(&claims.of_identity())?)
        } else {
            None
        };
        Ok(Grant {
            token,
            id_token,
            expires_in: self.expires_in,
            not_before: self.tokens.not_before(),
            scope: scope.to_owned(),
        })
    }

    /// The wall clock in seconds since 1970, as the tokens' claims have it.
    pub(crate) fn wall(&self) -> i64 {
        self.clock.wall_at(self.clock.now())
    }

    /// Accepts the number of a statement, once for as long as the statement is good.
    pub(crate) fn accepts_number(&mut self, number: String, until: i64) -> bool {
        let now = self.wall();
        self.numbers.retain(|_, until| *until >= now);
        match self.numbers.entry(number) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                // Clocks may differ, and so it is remembered for a while longer.
                free.insert(until.saturating_add(60));
                true
            }
        }
    }

    /// Revokes every token there is; replies then say since when.
    pub(crate) fn revoke_all(&mut self) {
        let wall = self.wall();
        self.tokens.revoke_all(wall);
    }

    /// The token's record, if it is valid at `now`.
    pub(crate) fn valid(&self, token: &str, now: Duration) -> Option<Arc<Issued>> {
        self.tokens.valid(token, now)
    }
}

/// The member that exists from the start.
const MEMBER: &str = "demo";

/// Contract, "Limits": API keys per member.
const KEYS_PER_MEMBER: usize = 3;

#[cfg(test)]
mod tests;
