//! What a driver does to the shared state while it is on duty.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};

use super::{
    entry::{Answer, Waiter},
    grant::{Issued, Means},
    shared::Shared,
    sync::mpsc,
};
use crate::{Event, Reason, TokenError, error::token::Kind, moment::Moment};

/// What the driver does next.
pub(super) enum Next {
    /// Renew the token now.
    Renew,
    /// Look again then, or when somebody asks.
    Sleep(Instant),
    /// Nothing, until somebody asks.
    Idle,
    /// Nothing ever again: another driver has taken over.
    End,
}

/// Kept by a driver for as long as its flight lasts, for its drop: that is what those see who wait
/// for the end of it, however it ends.
pub(super) type Flying = watch::Sender<()>;

// === impl Shared ===

impl Shared {
    /// Brings the slot up to date, and says what is due. Only a running driver may call this: it
    /// is the promise that somebody empties the slot in time.
    pub(super) fn attend(&self, shift: u64) -> Next {
        let now = self.now();
        let mut cold = self.lock();
        if cold.shift != shift {
            return Next::End;
        }
        let Some(token) = cold.fresh_at(now) else {
            let expired = cold.token.take().map(|token| token.generation);
            self.slot.empty();
            if let Some(generation) = expired {
                cold.loss = Reason::Expiry;
                drop(cold);
                self.tell(&Event::Expired { generation });
            }
            return Next::Idle;
        };
        let lifetime = token.lifetime;
        if self.slot.current() == 0 {
            self.slot.fill(Arc::clone(token));
        }
        let wait = lifetime.renew_at.left_at(now).max(cold.quiet_at(now));
        if wait.is_zero() {
            return Next::Renew;
        }
        let wait = wait.min(lifetime.expires_at.left_at(now)).min(BEAT);
        // Beyond the end of time there is nothing to wait for.
        now.steady.checked_add(wait).map_or(Next::Idle, Next::Sleep)
    }

    /// Until when the token in use needs no look, if there is one.
    pub(super) fn look_at(&self) -> Option<Instant> {
        let now = self.now();
        let expiry = self.lock().token.as_ref()?.lifetime.expires_at;
        now.steady.checked_add(expiry.left_at(now).min(BEAT))
    }

    /// Asks for leave to make one token request.
    pub(super) fn depart(&self) -> Result<(), TokenError> {
        let now = self.now();
        self.lock().spend_at(now)
    }

    /// Begins a flight: why a token is asked for, and when this is. `None` if another driver has
    /// taken over.
    pub(super) fn take_off(&self, shift: u64) -> Option<((Reason, Moment), Flying)> {
        let now = self.now();
        let mut cold = self.lock();
        if cold.shift != shift {
            return None;
        }
        let (flying, landed) = watch::channel(());
        cold.flight = Some(landed);
        Some(((cold.reason_at(now), now), flying))
    }

    /// There are other credentials than those that were refused.
    pub(super) fn forgive(&self) {
        self.lock().forgive();
        self.tell(&Event::CredentialsChanged);
    }

    /// Records the outcome of a flight and returns it with everyone who waits for it.
    ///
    /// The waiters are collected under the same lock as the record is made: whoever is not among
    /// them enters later, and finds the record. `None` if another driver has taken over: what it
    /// has found since must stand.
    pub(super) fn settle(
        &self,
        outcome: Result<Issued, TokenError>,
        (reason, since): (Reason, Moment),
        (demands, shift): (&mut mpsc::UnboundedReceiver<Waiter>, u64),
    ) -> Option<(Answer, Vec<Waiter>)> {
        let now = self.now();
        let mut cold = self.lock();
        if cold.shift != shift {
            return None;
        }
        let published = outcome.and_then(|issued| {
            let means = issued.means;
            let token = cold.publish_at(now, issued, self.settings.policy)?;
            Ok((token, means))
        });
        let (answer, event) = match published {
            Ok((token, means)) => {
                let generation = token.generation;
                let life = token.lifetime.expires_at.left_at(now);
                let event = match means {
                    Means::Request => Event::Issued {
                        generation,
                        reason,
                        took: since.age_at(now),
                        life,
                    },
                    Means::Store => Event::Shared {
                        generation,
                        reason,
                        life,
                    },
                };
                self.slot.fill(token);
                (Ok(()), event)
            }
            Err(error) => {
                let error = cold.refuse_at(now, &error);
                (Err(error.clone()), Event::Failed { error, reason })
            }
        };
        let waiters = std::iter::from_fn(|| demands.try_recv().ok()).collect();
        drop(cold);
        self.tell(&event);
        Some((answer, waiters))
    }

    /// The driver is gone: from here on the token is used by the clock, until there is another.
    pub(super) fn abandon(
        &self,
        (demands, shift): (&mut mpsc::UnboundedReceiver<Waiter>, u64),
        panicked: bool,
    ) {
        let now = self.now();
        let mut cold = self.lock();
        demands.close();
        if cold.shift != shift {
            return;
        }
        self.slot.empty();
        if panicked {
            // Those who wait ask anew at once; without a refusal, a client that always panics
            // would be called in a loop.
            cold.refuse_at(now, &TokenError::new(Kind::Transport));
        }
    }
}

/// How often the driver looks at the clocks while a token is in use, which bounds how long the end
/// of a suspension, or a step of the wall clock, goes unnoticed. A look costs a microsecond.
const BEAT: Duration = Duration::from_secs(5);
