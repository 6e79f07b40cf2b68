//! Asking the other processes first: a token of theirs, or the lease to ask for one for all.

use std::{sync::Weak, time::Duration};

use tokio::time::{Instant, sleep};

use super::{Broken, Named, Worth};
use crate::{Credentials, clock::Clock, request::Issued, source};

/// Who has what the others got.
pub(crate) trait Wants {
    /// Whether a token from the store is better than what is here.
    fn wants(&self, issued: &Issued) -> bool;
}

/// Asks the others before a token request, and tells them of its token.
pub(crate) struct Leases {
    store: Option<Named>,
    clock: Clock,
    /// For how long a process is given to get a token for all.
    term: Duration,
    /// Under which the last token was asked for.
    key: String,
    /// Until when this process holds the lease of that key.
    leased: Option<Instant>,
}

// === impl Leases ===

impl Leases {
    pub(crate) fn new(store: Option<Named>, clock: Clock, term: Duration) -> Self {
        Self {
            store,
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
    pub(crate) async fn ask(
        &mut self,
        holder: &Weak<impl Wants>,
        credentials: &Credentials,
    ) -> Option<Issued> {
        let store = self.store.clone()?;
        let key = store.key(credentials);
        if key != self.key {
            (self.key, self.leased) = (key, None);
        }
        let give_up = self.clock.now().steady.checked_add(self.term)?;
        let found = self.look(&store, give_up, holder).await;
        found.unwrap_or_default()
    }

    async fn look(
        &mut self,
        store: &Named,
        give_up: Instant,
        holder: &Weak<impl Wants>,
    ) -> Result<Option<Issued>, Broken> {
        loop {
            let found = store.load_at(self.clock.now().wall, &self.key).await?;
            let issued = found.and_then(|worth| self.issued(&worth));
            if let Some(issued) = issued
                && holder.upgrade().is_some_and(|holder| holder.wants(&issued))
            {
                self.release();
                return Ok(Some(issued));
            }
            let now = self.clock.now().steady;
            if now >= give_up || self.leased.is_some_and(|until| now < until) {
                return Ok(None);
            }
            if store.lease(&self.key, self.term).await? {
                // From before it was asked for, so that it is not thought to last longer than it
                // does. And another look: who had it before may have saved a token since ours.
                self.leased = now.checked_add(self.term);
            } else {
                sleep(LOOK).await;
            }
        }
    }

    /// Tells the others of a token that this process has asked for, after [`ask`](Self::ask); or
    /// that it got none, so that another may try.
    pub(crate) async fn tell(&mut self, issued: Option<&Issued>) {
        let Some(store) = self.store.clone() else {
            return;
        };
        // A failure has been told of, and the others can ask for themselves.
        if let Some(issued) = issued
            && let Some(token) = source::token(&issued.header)
        {
            self.leased = None;
            let saved = store.save(&self.key, token, issued.sent.wall, issued.life);
            drop(saved.await);
        } else {
            self.release();
        }
    }

    fn release(&mut self) {
        if let Some(store) = &self.store
            && self.leased.is_some()
            && store.release(&self.key)
        {
            self.leased = None;
        }
    }

    fn issued(&self, worth: &Worth) -> Option<Issued> {
        let now = self.clock.now();
        let (sent, life) = match now.checked_sub(worth.age) {
            Some(sent) => (sent, worth.life),
            // This machine was started after the token was issued: what is left of it counts.
            None => (now, worth.life.saturating_sub(worth.age)),
        };
        let header = source::header(&worth.token).ok()?;
        // Whoever wrote this entry may have been wrong about it; the token says itself.
        let exp = crate::claims::expires_at(&header);
        let exp = exp.map(|exp| exp.duration_since(sent.wall).unwrap_or_default());
        Some(Issued {
            life: exp.map_or(life, |exp| exp.min(life)),
            header,
            sent,
            own: false,
        })
    }
}

/// Its task may end with its runtime, in the middle of a request.
impl Drop for Leases {
    fn drop(&mut self) {
        self.release();
    }
}

/// Between two looks for what another process is getting: fifty processes that wait make two
/// hundred reads a second, which is nothing to a Redis.
const LOOK: Duration = Duration::from_millis(250);
