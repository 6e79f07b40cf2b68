//! The other processes, as far as their store tells of them.

use std::{sync::Weak, time::Duration};

use tokio::time::Instant;

use super::{
    bearer,
    grant::{Issued, Means},
    shared::Shared,
    sync::sleep,
};
use crate::{
    Credentials,
    clock::Clock,
    store::{Broken, Shelf, Worth},
};

/// Asks the others before a token request, and tells them of its token.
pub(super) struct Fleet {
    shelf: Option<Shelf>,
    clock: Clock,
    /// For how long a process is given to get a token for all.
    term: Duration,
    /// Under which the last token was asked for.
    key: String,
    /// Until when this process holds the lease of that key.
    leased: Option<Instant>,
}

// === impl Fleet ===

impl Fleet {
    pub(super) fn new(shelf: Option<Shelf>, clock: Clock, term: Duration) -> Self {
        Self {
            shelf,
            clock,
            term,
            key: String::new(),
            leased: None,
        }
    }

    /// A token that another process got; `None` if it is on this one to ask for one.
    ///
    /// While another holds the lease, it is waited for, for one term at most: by then it has died,
    /// or the store is not what it says.
    pub(super) async fn ask(
        &mut self,
        shared: &Weak<Shared>,
        credentials: &Credentials,
    ) -> Option<Issued> {
        let shelf = self.shelf.clone()?;
        let key = shelf.key(credentials);
        if key != self.key {
            (self.key, self.leased) = (key, None);
        }
        let give_up = self.clock.now().steady.checked_add(self.term)?;
        let found = self.look(&shelf, give_up, shared).await;
        found.unwrap_or_default()
    }

    async fn look(
        &mut self,
        shelf: &Shelf,
        give_up: Instant,
        shared: &Weak<Shared>,
    ) -> Result<Option<Issued>, Broken> {
        loop {
            let found = shelf.load_at(self.clock.now().wall, &self.key).await?;
            let issued = found.and_then(|worth| self.issued(&worth));
            if let Some(issued) = issued
                && shared.upgrade().is_some_and(|shared| shared.wants(&issued))
            {
                return Ok(Some(issued));
            }
            let now = self.clock.now().steady;
            if now >= give_up || self.leased.is_some_and(|until| now < until) {
                return Ok(None);
            }
            if shelf.lease(&self.key, self.term).await? {
                // From before it was asked for, so that it is not thought to last longer than it
                // does. And another look: who had it before may have saved a token since ours.
                self.leased = now.checked_add(self.term);
            } else {
                sleep(LOOK).await;
            }
        }
    }

    /// Tells the others of a token that this process has asked for, after [`ask`](Self::ask).
    pub(super) async fn tell(&mut self, issued: &Issued) {
        let Some(shelf) = &self.shelf else {
            return;
        };
        self.leased = None;
        if let Some(token) = bearer::token(&issued.header) {
            let saved = shelf.save(&self.key, token, issued.sent.wall, issued.life);
            // A failure has been told of, and the others can ask for themselves.
            drop(saved.await);
        }
    }

    fn issued(&self, worth: &Worth) -> Option<Issued> {
        let now = self.clock.now();
        let (sent, life) = match now.checked_sub(worth.age) {
            Some(sent) => (sent, worth.life),
            // This machine was started after the token was issued: what is left of it counts.
            None => (now, worth.life.saturating_sub(worth.age)),
        };
        Some(Issued {
            header: bearer::header(&worth.token).ok()?,
            sent,
            life,
            means: Means::Store,
        })
    }
}

/// Between two looks for what another process is getting: fifty processes that wait make two
/// hundred reads a second, which is nothing to a Redis.
const LOOK: Duration = Duration::from_millis(250);
