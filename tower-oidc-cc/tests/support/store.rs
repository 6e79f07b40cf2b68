//! A shared store with faults: it can fail, hang, be slow, and hold other entries.

use std::{
    collections::HashMap,
    error::Error,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tower_oidc_cc::{StoredToken, TokenStore};

#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    tokens: HashMap<String, StoredToken>,
    /// Ends of the turns.
    turns: HashMap<String, Instant>,
    faults: HashMap<Op, Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Load,
    Save,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Fails,
    Hangs,
}

// === impl Store ===

impl Store {
    pub(crate) fn set(&self, op: Op, fault: Fault) {
        self.state.lock().unwrap().faults.insert(op, fault);
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.state.lock().unwrap().tokens.keys().cloned().collect()
    }

    /// All entries by their keys.
    pub(crate) fn tokens(&self) -> HashMap<String, StoredToken> {
        self.state.lock().unwrap().tokens.clone()
    }

    pub(crate) fn put(&self, key: &str, bytes: impl Into<Vec<u8>>) {
        let token = StoredToken::from_bytes(bytes);
        let mut state = self.state.lock().unwrap();
        state.tokens.insert(key.to_owned(), token);
    }

    /// Takes the turn of a key for a process that never saves an entry.
    pub(crate) fn hold(&self, key: &str, term: Duration) {
        let until = Instant::now() + term;
        self.state
            .lock()
            .unwrap()
            .turns
            .insert(key.to_owned(), until);
    }

    /// Returns the entry, and whether it is enough or it is the turn of this process.
    fn look(
        &self,
        key: &str,
        is_enough: &(dyn Fn(&StoredToken) -> bool + Sync),
    ) -> (Option<StoredToken>, bool) {
        let (mut state, now) = (self.state.lock().unwrap(), Instant::now());
        // As in a real store, the token is converted into bytes and back.
        let found = state.tokens.get(key);
        let found = found.map(|token| StoredToken::from_bytes(token.as_bytes()));
        let is_enough = found.as_ref().is_some_and(is_enough);
        let is_free = state.turns.get(key).is_none_or(|until| *until <= now);
        if !is_enough && is_free {
            let until = now + Duration::from_secs(5);
            state.turns.insert(key.to_owned(), until);
        }
        (found, is_enough || is_free)
    }

    async fn fault(&self, op: Op) -> Result<(), Box<dyn Error + Send + Sync>> {
        let fault = self.state.lock().unwrap().faults.get(&op).copied();
        match fault {
            None => Ok(()),
            Some(Fault::Fails) => Err("the store is down".into()),
            Some(Fault::Hangs) => pending().await,
        }
    }
}

impl TokenStore for Store {
    async fn load(
        &self,
        key: &str,
        is_enough: &(dyn Fn(&StoredToken) -> bool + Sync),
    ) -> Result<Option<StoredToken>, Box<dyn Error + Send + Sync>> {
        self.fault(Op::Load).await?;
        loop {
            if let (found, true) = self.look(key, is_enough) {
                return Ok(found);
            }
            sleep(Duration::from_millis(250)).await;
        }
    }

    async fn save(
        &self,
        key: &str,
        entry: &StoredToken,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.fault(Op::Save).await?;
        let mut state = self.state.lock().unwrap();
        state.tokens.insert(key.to_owned(), entry.clone());
        state.turns.remove(key);
        Ok(())
    }
}
