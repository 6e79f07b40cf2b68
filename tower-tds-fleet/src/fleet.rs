//! The handle of a fleet: who asks it for leases, and what it shows.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    hash::{BuildHasher as _, RandomState},
    num::NonZeroU32,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};
use tower_tds_limits::{
    AskLease, Ended, Lease, LeaseFuture, Leases, LimitError, Limits, Outcome, WaitCause,
};

use crate::{
    clock,
    driver::Driver,
    error::FleetError,
    member::{Event, Granted, Heard, Id, Member, Term},
    script::{Account, Standing},
    tls,
};

/// One quota for all processes that use one name at one store.
///
/// # Clone
/// Clones are the same member. It leaves the fleet when the last of them is gone, and the limiters that
/// were made from it; [`leave`](Self::leave) waits for that.
#[derive(Clone)]
pub struct Fleet {
    member: Arc<Handle>,
}

/// Ends the member's thread with its drop.
struct Handle {
    shared: Arc<Shared>,
}

/// What the callers and the thread have in common.
pub(crate) struct Shared {
    /// Guards plain data, for a few instructions; no waker is woken under it but those of channels.
    state: Mutex<State>,
    /// For the thread: there is something to do.
    pub(crate) news: Notify,
    /// From it: there is nothing more to tell.
    pub(crate) told: Notify,
}

pub(crate) struct State {
    pub(crate) member: Member<Waiter>,
    pub(crate) standing: Standing,
    pub(crate) store: Store,
    /// Whether the store is told something, and has not answered.
    pub(crate) telling: bool,
    /// Whether it leaves, or all handles are gone.
    pub(crate) closed: bool,
    /// Whether its thread has ended.
    pub(crate) ended: bool,
}

/// How the store is.
#[derive(Debug, Clone)]
pub(crate) enum Store {
    /// Nothing has been heard of it yet, since then.
    Sought(Instant),
    Here,
    /// Since when, and why.
    Away(Instant, Arc<str>),
}

/// Somebody who waits for a lease.
pub(crate) struct Waiter {
    pub(crate) lease: oneshot::Sender<Result<Held, LimitError>>,
    /// Whether it waits for one answer, and no longer.
    pub(crate) once: bool,
    /// Whether it is a token's, say, which goes before the others.
    pub(crate) first_in_line: bool,
}

/// A lease in the hands of a request.
pub(crate) struct Held {
    shared: Arc<Shared>,
    id: Id,
    until: Instant,
    over: oneshot::Receiver<Infallible>,
    stage: Stage,
    /// A token's, say: what it is told of its own quota is nothing to the others.
    first_in_line: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    // ## Unused => (Used | Over)
    Unused,
    // ## Used => Over
    Used,
    Over,
}

/// What a member does while the store is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WithoutStore {
    /// It sends nothing.
    #[default]
    Closed,
    /// It sends so many of the quota, agreed beforehand: one at a time and evenly spaced, from 31 s after it
    /// last heard the store, for ten minutes. The shares of all members together are at most half of the quota,
    /// and by default those of five members, since they leave half of a bucket's places, too.
    ///
    /// The store withholds the share of a member that it has not heard of for 20 s, for eleven minutes, so
    /// it hears of each every few seconds; that of one that died, too, and half is left however many died. One
    /// that never reached the store, or whose share was too much together with the others', stays closed: see
    /// [`FleetStatus::has_share`].
    /// Nothing of what the others hear reaches it: a refusal silences it alone, for two intervals, and the fleet's
    /// rung is not kept. A request under way is ended after ten seconds.
    /// Back at the store, it asks for leases when whatever it has sent without is over, two seconds later.
    Share(NonZeroU32),
}

/// How a fleet looks from one of its members.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FleetStatus {
    /// Why the store is away, if it is known to be: in the words of the attempt that failed.
    pub away: Option<Arc<str>>,
    /// Calls of this process that wait for a lease.
    pub waiting: usize,
    /// Leases that this process holds.
    pub held: usize,
    /// Whether the store has agreed to this member's share: [`WithoutStore::Share`].
    pub has_share: bool,
    /// Leases of all members that were live when the store last answered.
    pub live: u64,
    /// How many rungs the fleet has stepped down: see [`Rung`](tower_tds_limits::Rung).
    pub rung: u8,
    /// For how long the service had said, by then, that the quota is used up.
    pub paused_for: Duration,
    /// How long a store without memory still was to grant nothing, by then.
    pub opens_in: Duration,
}

// === impl Fleet ===

impl Fleet {
    /// Joins the fleet of this name at the store at `url`, to keep `limits` with all its other members.
    ///
    /// The store is Redis from 6.2 on, or Valkey; a URL is `redis://[user:password@]host[:port]/[database]`,
    /// or `rediss://` with the feature `tls`. All members need the same limits. The store need not be
    /// there yet.
    ///
    /// # Errors
    /// What of the description cannot be used; no store is asked for that.
    pub fn join(url: &str, name: &str, limits: &Limits) -> Result<Self, FleetError> {
        Self::join_with(url, name, limits, WithoutStore::Closed)
    }

    /// As [`join`](Self::join), with another answer to a store that is away.
    ///
    /// # Errors
    /// As of [`join`](Self::join), and a share that is more than half of the quota.
    pub fn join_with(
        url: &str,
        name: &str,
        limits: &Limits,
        without_store: WithoutStore,
    ) -> Result<Self, FleetError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > 100 || !name.chars().all(is_plain) {
            return Err(FleetError::name());
        }
        let client = redis::Client::open(url).map_err(FleetError::url)?;
        tls::provide(&client).map_err(FleetError::url)?;
        let term = Term {
            lease: limits.longest_lost().saturating_add(RENEWED),
            lost: limits.longest_lost(),
        };
        let account = Account::new(name, nonce(), limits, term.lease)?;
        let share = match without_store {
            WithoutStore::Closed => None,
            WithoutStore::Share(requests) => Some(account.share(requests, limits, term.lease)?),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                member: Member::new(term, share, clock::now()),
                standing: Standing::default(),
                store: Store::Sought(clock::now()),
                telling: false,
                closed: false,
                ended: false,
            }),
            news: Notify::new(),
            told: Notify::new(),
        });
        Driver::start(client, account, Arc::clone(&shared)).map_err(FleetError::thread)?;
        Ok(Self {
            member: Arc::new(Handle { shared }),
        })
    }

    /// Waits until the store grants: it is there, and remembers this quota. A lease is taken for that, and
    /// goes back at once. A member with a share is ready by that, too, while the store is away.
    ///
    /// For the start of a program: over a store without memory, as at the very first start, this takes 31 s,
    /// which are otherwise those of the first calls; and with a quota of an hour, an hour and half a minute. While the store is away it waits for it.
    ///
    /// # Errors
    /// The service has said that the quota is used up for more than a minute.
    ///
    /// # Cancel safety
    /// Dropping it gives up the wait.
    pub async fn ready(&self) -> Result<(), LimitError> {
        let lease = self.lease(AskLease::default()).await?;
        lease.end(Ended::Unsent);
        Ok(())
    }

    /// Waits until this process holds no lease, and the store knows what came of each.
    ///
    /// For the end of a program: what the store is not told of is withheld from all members until it ends
    /// by itself, 21 s later. While the store is away this waits for it, so bound it by a timeout.
    ///
    /// # Cancel safety
    /// It only looks.
    pub async fn idle(&self) {
        let shared = &self.member.shared;
        loop {
            // Told from here on, before anybody looks.
            let told = shared.told.notified();
            {
                let mut state = shared.lock();
                let is_told = state.member.is_over(clock::now()) && !state.telling;
                // Nobody tells anything any more once the thread has ended.
                if is_told || state.ended {
                    return;
                }
            }
            told.await;
        }
    }

    /// Leaves the fleet: no call of this process gets a lease any more, nor does one that waits. Returns when
    /// those that are held have ended, and the store knows what came of each and has this member's share back.
    ///
    /// For the end of a program. The drop of the last handle does the same, and nobody waits for that. Without it a share
    /// is withheld from the others for eleven minutes, and leases for 21 s. While the store is away this gives up
    /// with the next attempt to reach it, within five seconds, unless a lease is held.
    ///
    /// # Cancel safety
    /// It leaves all the same.
    pub async fn leave(&self) {
        let shared = &self.member.shared;
        let waiting = {
            let mut state = shared.lock();
            state.closed = true;
            state.member.take_waiting(|_| true)
        };
        drop(waiting);
        shared.news.notify_one();
        loop {
            // Told from here on, before anybody looks.
            let told = shared.told.notified();
            if shared.lock().ended {
                return;
            }
            told.await;
        }
    }

    /// How the fleet looks from here.
    #[must_use]
    pub fn status(&self) -> FleetStatus {
        let state = self.member.shared.lock();
        FleetStatus {
            away: state.store.away(),
            waiting: state.member.waiting(),
            held: state.member.held(),
            has_share: state.member.has_share(),
            live: state.standing.live,
            rung: state.standing.rung,
            paused_for: state.standing.paused,
            opens_in: state.standing.opens,
        }
    }
}

impl Leases for Fleet {
    fn lease(&self, ask: AskLease) -> LeaseFuture {
        // The thread lives for as long as somebody waits.
        let member = Arc::clone(&self.member);
        Box::pin(async move {
            let shared = Arc::clone(&member.shared);
            let lease: Box<dyn Lease> = Box::new(shared.lease(ask).await?);
            Ok(lease)
        })
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fleet").field(&self.status()).finish()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.news.notify_one();
    }
}

// === impl Shared ===

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn lease(self: Arc<Self>, ask: AskLease) -> Result<Held, LimitError> {
        let began = clock::now();
        let bounded = async {
            loop {
                let (lease, granted) = oneshot::channel();
                let once = ask.max_wait == Some(Duration::ZERO);
                let waiter = Waiter {
                    lease,
                    once,
                    first_in_line: ask.first_in_line,
                };
                self.lock().wait(waiter)?;
                self.news.notify_one();
                let mut held = granted.await.unwrap_or_else(|_| Err(left()))?;
                // One that has ended in these moments is somebody else's.
                let used = held
                    .is_fresh()
                    .then(|| self.lock().member.used(held.id, clock::now()));
                if let Some(is_due) = used.flatten() {
                    held.stage = Stage::Used;
                    held.first_in_line = ask.first_in_line;
                    if is_due {
                        self.news.notify_one();
                    }
                    return Ok(held);
                }
            }
        };
        match ask.max_wait.filter(|wait| !wait.is_zero()) {
            None => bounded.await,
            Some(wait) => match tokio::time::timeout(wait, bounded).await {
                Ok(lease) => lease,
                Err(_) => {
                    let away = self.lock().store.why_away();
                    let waited = clock::now().saturating_duration_since(began);
                    let timed_out = || LimitError::timed_out(WaitCause::Lease, waited);
                    Err(away.map_or_else(timed_out, LimitError::unavailable))
                }
            },
        }
    }

    fn end(&self, event: Event) {
        self.lock().member.ended(event, clock::now());
        self.news.notify_one();
    }

    /// Gives the share's next place to the first who waits.
    pub(crate) fn hand_out_alone(self: &Arc<Self>) {
        let granted = self.lock().member.grant_alone(clock::now());
        self.hand_out(granted.into_iter().collect());
    }

    /// Gives leases to those who wait, and back what nobody waits for.
    pub(crate) fn hand_out(self: &Arc<Self>, granted: Vec<Granted>) {
        for Granted { id, until, over } in granted {
            let mut held = Held {
                shared: Arc::clone(self),
                id,
                until,
                over,
                stage: Stage::Unused,
                first_in_line: false,
            };
            loop {
                let waiter = self.lock().member.next_waiting();
                let Some(waiter) = waiter else {
                    // Nobody: its drop says so.
                    break;
                };
                match waiter.lease.send(Ok(held)) {
                    Ok(()) => break,
                    Err(Ok(unwanted)) => held = unwanted,
                    Err(Err(_)) => break,
                }
            }
        }
    }
}

// === impl State ===

impl State {
    fn wait(&mut self, waiter: Waiter) -> Result<(), LimitError> {
        if self.closed {
            return Err(left());
        }
        let (at_once, first_in_line) = (waiter.once, waiter.first_in_line);
        self.member.wait(waiter, first_in_line, at_once);
        Ok(())
    }
}

// === impl Store ===

impl Store {
    fn away(&self) -> Option<Arc<str>> {
        match self {
            Self::Here | Self::Sought(_) => None,
            Self::Away(_, why) => Some(Arc::clone(why)),
        }
    }

    /// Said to those whose wait is over.
    pub(crate) fn why_away(&self) -> Option<Arc<str>> {
        match self {
            Self::Here => None,
            Self::Sought(since) => Some(format!("the store has not answered for {:.1?}", since.elapsed()).into()),
            Self::Away(since, why) => Some(
                format!(
                    "the store has been away for {:.1?} ({why}): see to it; those go on meanwhile that have a share \
                     (WithoutStore::Share, FleetStatus::has_share)",
                    since.elapsed()
                )
                .into(),
            ),
        }
    }
}

// === impl Held ===

impl Held {
    /// Whether what is sent now is counted while the lease lives.
    fn is_fresh(&self) -> bool {
        clock::now() < self.until
    }

    fn say(&mut self, event: Event) {
        self.stage = Stage::Over;
        self.shared.end(event);
    }
}

impl Lease for Held {
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // By the clock: a process that was stopped may come here before its thread has run. The channel only
        // wakes, since it says nothing to a task that has used up its turn.
        if !self.shared.lock().member.holds(self.id, clock::now()) {
            return Poll::Ready(());
        }
        Pin::new(&mut self.over).poll(cx).map(drop)
    }

    fn end(mut self: Box<Self>, ended: Ended) {
        let id = self.id;
        let event = match ended {
            Ended::Proven(outcome) => Event::Proven(id, heard(outcome, self.first_in_line)),
            Ended::Within(within) => Event::Within(id, within),
            Ended::Unsent => Event::Unsent(id),
            // Whatever else there may be: it ends by itself.
            _ => return,
        };
        self.say(event);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        match self.stage {
            Stage::Unused => self.say(Event::Unsent(self.id)),
            Stage::Used => {
                self.shared.lock().member.forget(self.id, clock::now());
                self.shared.news.notify_one();
            }
            Stage::Over => {}
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

fn heard(outcome: Outcome, first_in_line: bool) -> Heard {
    match outcome {
        Outcome::RateExceeded => Heard::Refused,
        _ if first_in_line => Heard::Nothing,
        Outcome::Answered | Outcome::Served(_) => Heard::Accepted,
        Outcome::QuotaExceeded(hint) => Heard::QuotaExceeded(hint),
        Outcome::ConnectionsExceeded
        | Outcome::GatewayFailed
        | Outcome::GatewayTimedOut
        | Outcome::Unsent
        | Outcome::Closed
        | Outcome::Lost
        | _ => Heard::Nothing,
    }
}

fn left() -> LimitError {
    LimitError::unavailable("this process has left the fleet")
}

/// Tells members apart: no two of a fleet have the same, so it comes from the system's randomness. A number that a
/// script's numbers hold exactly.
fn nonce() -> String {
    let random = RandomState::new().hash_one(());
    (random >> 12).to_string()
}

/// A lease is renewed for so long after its last success, and then ended while it still lives for as
/// long as what was sent can be counted.
const RENEWED: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
