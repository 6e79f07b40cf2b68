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
    leases: HashMap<String, Instant>,
    faults: HashMap<Op, Fault>,
    releases: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Load,
    Save,
    Lease,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Fails,
    Hangs,
    Slow(Duration),
}

// === impl Store ===

impl Store {
    pub(crate) fn faulty(op: Op, fault: Fault) -> Self {
        let store = Self::default();
        store.set(op, fault);
        store
    }

    /// A store whose leases can be given back.
    pub(crate) fn releasing() -> Self {
        let store = Self::default();
        store.state.lock().unwrap().releases = true;
        store
    }

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

    /// Takes the lease of a key for a process that never saves a token.
    pub(crate) fn hold(&self, key: &str, term: Duration) {
        let until = Instant::now() + term;
        let mut state = self.state.lock().unwrap();
        state.leases.insert(key.to_owned(), until);
    }

    /// The remaining time of each lease.
    pub(crate) fn leased_for(&self) -> Vec<Duration> {
        let state = self.state.lock().unwrap();
        let now = Instant::now();
        state.leases.values().map(|until| *until - now).collect()
    }

    async fn fault(&self, op: Op) -> Result<(), Box<dyn Error + Send + Sync>> {
        let fault = self.state.lock().unwrap().faults.get(&op).copied();
        match fault {
            None => Ok(()),
            Some(Fault::Fails) => Err("the store is down".into()),
            Some(Fault::Hangs) => pending().await,
            Some(Fault::Slow(by)) => {
                sleep(by).await;
                Ok(())
            }
        }
    }
}

impl TokenStore for Store {
    async fn load(&self, key: &str) -> Result<Option<StoredToken>, Box<dyn Error + Send + Sync>> {
        self.fault(Op::Load).await?;
        // As in a real store, the token is converted into bytes and back.
        let found = self.state.lock().unwrap().tokens.get(key).cloned();
        Ok(found.map(|token| StoredToken::from_bytes(token.as_bytes())))
    }

    async fn save(
        &self,
        key: &str,
        token: &StoredToken,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.fault(Op::Save).await?;
        let mut state = self.state.lock().unwrap();
        state.tokens.insert(key.to_owned(), token.clone());
        state.leases.remove(key);
        Ok(())
    }

    async fn lease(&self, key: &str, term: Duration) -> Result<bool, Box<dyn Error + Send + Sync>> {
        self.fault(Op::Lease).await?;
        let now = Instant::now();
        let mut state = self.state.lock().unwrap();
        if state.leases.get(key).is_some_and(|until| *until > now) {
            return Ok(false);
        }
        state.leases.insert(key.to_owned(), now + term);
        Ok(true)
    }

    fn release(&self, key: &str) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.releases {
            state.leases.remove(key);
        }
        state.releases
    }
}
