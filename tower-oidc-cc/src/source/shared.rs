//! The state that handles and the refresh task share: the slot, and the token's life behind one lock.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, PoisonError, TryLockError, Weak},
    time::Duration,
};

use http::HeaderValue;
use tokio::{sync::watch, time::Instant};

use super::{
    Settings, Wait,
    refresh::Refresh,
    slot::{Bearer, Slot},
    sync::{Handle, Mutex, MutexGuard, mpsc, oneshot},
};
use crate::{
    Health, TokenError,
    clock::Timestamp,
    error::token::Kind,
    request::{Grant, Issued},
    state::{Action, Call, Complaint, Event, Fetched, Life, Notice},
    store::Wants,
};

/// One token, one task that asks, any number of readers.
pub(crate) struct Shared {
    pub(super) slot: Slot,
    /// Everything else. Whoever writes the slot holds this lock; it is never held across an
    /// `.await`, nor while a task is spawned, an outcome sent or an event told.
    state: Mutex<State>,
    pub(super) grant: Arc<dyn Grant>,
    pub(super) settings: Settings,
    this: Weak<Self>,
}

/// What the lock guards.
pub(super) struct State {
    life: Life,
    /// The header of the token that is in use; the slot may be empty meanwhile.
    token: Option<Arc<Bearer>>,
    /// Where the task listens; closed when it is gone.
    demands: Option<mpsc::UnboundedSender<Waiter>>,
    /// Closed when the last token request is over; `None` if there was none.
    request: Option<watch::Receiver<()>>,
}

/// The outcome of a token request, as each waiter gets it.
pub(super) type Answer = Result<(), TokenError>;
/// The way to one waiter.
pub(super) type Waiter = oneshot::Sender<Answer>;
/// Kept by the task for as long as its request lasts, for its drop: that is what those see who wait
/// for the end of it, however it ends.
pub(super) type UnderWay = watch::Sender<()>;

/// What a caller finds who looks for a token.
pub(super) enum Entry {
    /// There is one.
    Fresh,
    /// There is none, and this is why nobody asks for one now.
    Refused(TokenError),
    Waiting(oneshot::Receiver<Answer>),
}

/// What was made of a complaint about a token.
pub(crate) enum Outcome {
    /// Another has replaced it before.
    Superseded,
    /// It stays in use.
    Kept,
    /// It stays in use until its successor is there, which may be awaited.
    Replacing(Wait),
}

/// What the task does next.
pub(super) enum Next {
    /// Ask for a token now.
    Ask(UnderWay),
    /// Look again then, or when somebody asks.
    Sleep(Instant),
    /// Nothing, until somebody asks.
    Idle,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(life: Life, grant: Arc<dyn Grant>, settings: Settings) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            slot: Slot::new(),
            state: Mutex::new(State {
                life,
                token: None,
                demands: None,
                request: None,
            }),
            grant,
            settings,
            this: Weak::clone(this),
        })
    }

    /// Whether there is a token that may be sent at this moment, as far as a quick look says.
    pub(super) fn is_fresh(&self) -> bool {
        let wall = self.settings.clock.wall();
        let token = self.slot.load();
        token.as_ref().is_some_and(|token| token.is_fresh_at(wall))
    }

    /// The header and the number of the token of this moment: from the slot, or else by both clocks.
    pub(super) fn header(&self) -> Option<(HeaderValue, u64)> {
        let wall = self.settings.clock.wall();
        if let Some(token) = self.slot.load().as_ref()
            && token.is_fresh_at(wall)
        {
            return Some((token.header.clone(), token.generation));
        }
        self.take()
            .map(|(header, generation, _)| (header, generation))
    }

    /// The token with its number and its expiry, for those who send it themselves.
    pub(super) fn take(&self) -> Option<(HeaderValue, u64, Timestamp)> {
        let now = self.now();
        let state = self.lock();
        let (generation, lifetime) = state.life.fresh_at(now)?;
        let token = state.token.as_ref()?;
        Some((token.header.clone(), generation, lifetime.expires_at))
    }

    /// Looks for a token, and joins or starts the request that brings one.
    pub(super) fn enter(&self) -> Entry {
        let (entry, spawn) = self.locked(|state, now| {
            let action = state.life.on(Event::Asked, now);
            state.tidy(&self.slot, now);
            if let Action::Send = action {
                // A task is wanted all the same, for the renewal.
                return (Entry::Fresh, self.employ(state, None, now));
            }
            if let Some(error) = action.failure() {
                return (Entry::Refused(error), None);
            }
            let (waiter, receiver) = oneshot::channel();
            let spawn = self.employ(state, Some(waiter), now);
            if state.demands.is_none() {
                return (Entry::Refused(TokenError::new(Kind::NoRuntime)), None);
            }
            (Entry::Waiting(receiver), spawn)
        });
        start(spawn);
        entry
    }

    /// Acts on a complaint about the token of this number.
    pub(super) fn complain(&self, generation: u64, complaint: Complaint) -> Outcome {
        let (outcome, spawn) = self.locked(|state, now| {
            let action = state.life.on(Event::Refused(generation, complaint), now);
            if let Action::Superseded = action {
                return (Outcome::Superseded, None);
            }
            if let Action::Wait = action {
                let (waiter, receiver) = oneshot::channel();
                let spawn = self.employ(state, Some(waiter), now);
                if state.demands.is_some() {
                    return (Outcome::Replacing(Wait::of(self, receiver)), spawn);
                }
            }
            (Outcome::Kept, None)
        });
        start(spawn);
        outcome
    }

    /// The number of the token in use, if this is its header.
    pub(super) fn generation_of(&self, header: &HeaderValue) -> Option<u64> {
        let state = self.lock();
        let token = state.token.as_ref().filter(|token| token.header == *header);
        token.map(|token| token.generation)
    }

    /// Whether there is a newer token than the one of this number.
    pub(super) fn supersedes(&self, generation: u64) -> bool {
        let state = self.lock();
        let token = state.token.as_ref();
        token.is_some_and(|token| token.generation > generation)
    }

    /// A call was accepted. It waits for nobody: if the lock is taken, the next call may say so.
    pub(super) fn accept(&self, generation: u64, call: Call) {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        self.locked_by(state, |state, now| {
            state.life.on(Event::Accepted(generation, call), now);
        });
    }

    /// Brings the slot up to date, and says what is due. Only a running task may call this: it is
    /// the promise that somebody empties the slot in time.
    pub(super) fn attend(&self) -> Next {
        self.locked(|state, now| {
            let action = state.life.on(Event::Timer, now);
            state.tidy(&self.slot, now);
            if self.slot.is_empty()
                && let Some(token) = &state.token
            {
                self.slot.fill(Arc::clone(token));
            }
            if let Action::Request = action {
                let (under_way, request) = watch::channel(());
                state.request = Some(request);
                return Next::Ask(under_way);
            }
            // Beyond the end of time there is nothing to wait for.
            let wait = action.wait().map(|wait| wait.min(BEAT));
            let at = wait.and_then(|wait| now.steady.checked_add(wait));
            at.map_or(Next::Idle, Next::Sleep)
        })
    }

    /// Brings the slot up to date while the task is busy, and says when to look again.
    pub(super) fn look(&self) -> Option<Instant> {
        self.locked(|state, now| {
            let wait = state.life.on(Event::Busy, now).wait();
            state.tidy(&self.slot, now);
            now.steady.checked_add(wait.unwrap_or(BEAT).min(BEAT))
        })
    }

    /// Asks for leave to send one token request.
    pub(super) fn send(&self) -> Result<(), TokenError> {
        let action = self.locked(|state, now| state.life.on(Event::Sending, now));
        action.failure().map_or(Ok(()), Err)
    }

    /// Records the outcome of a request and returns it with everyone who waits for it.
    ///
    /// The waiters are collected under the same lock as the record is made: whoever is not among
    /// them enters later, and finds the record.
    pub(super) fn settle(
        &self,
        outcome: Result<Issued, TokenError>,
        demands: &mut mpsc::UnboundedReceiver<Waiter>,
    ) -> (Answer, Vec<Waiter>) {
        self.locked(|state, now| {
            let (event, header) = match outcome {
                Ok(issued) => (Event::Fetched(fetched(&issued)), Some(issued.header)),
                Err(error) => (Event::Failed(error), None),
            };
            let answer = match (state.life.on(event, now), header) {
                (Action::Use(generation, lifetime), Some(header)) => {
                    let token = Arc::new(Bearer {
                        generation,
                        header,
                        expires_at: lifetime.expires_at,
                    });
                    state.token = Some(Arc::clone(&token));
                    self.slot.fill(token);
                    Ok(())
                }
                (Action::Fail(error), _) => Err(error),
                _ => Ok(()),
            };
            let waiters = std::iter::from_fn(|| demands.try_recv().ok()).collect();
            (answer, waiters)
        })
    }

    /// The task is gone: from here on the token is used by the clocks, until there is another.
    pub(super) fn abandon(
        &self,
        demands: &mut mpsc::UnboundedReceiver<Waiter>,
        panicked: Option<&'static str>,
    ) {
        self.locked(|state, now| {
            demands.close();
            self.slot.empty();
            // Those who wait ask anew at once; without a failure, a client that always panics would
            // be called in a loop.
            let event = panicked.map_or(Event::Abandoned, |who| {
                Event::Failed(TokenError::new(Kind::Panicked(who)))
            });
            state.life.on(event, now);
        });
    }

    pub(super) fn request(&self) -> Option<watch::Receiver<()>> {
        self.lock().request.clone()
    }

    pub(super) fn health(&self) -> Health {
        self.locked(|state, now| state.life.health_at(now))
    }

    pub(super) fn now(&self) -> Timestamp {
        self.settings.clock.now()
    }

    /// Sees to it that there is a task, and gives it a waiter. Without a runtime there is none, and
    /// nobody who listens. What this returns is to be started once the lock is given back: a
    /// runtime that is shutting down drops a task at once, and the task's drop locks.
    fn employ(
        &self,
        state: &mut State,
        waiter: Option<Waiter>,
        now: Timestamp,
    ) -> Option<(Handle, Refresh)> {
        let demands = state.demands.as_ref();
        let spawn = if demands.is_none_or(mpsc::UnboundedSender::is_closed) {
            state.demands = None;
            let runtime = Handle::try_current().ok()?;
            let (sender, demands) = mpsc::unbounded_channel();
            state.demands = Some(sender);
            // What the last one had under way is gone with it.
            state.life.on(Event::Abandoned, now);
            let refresh = Refresh::new(Weak::clone(&self.this), self, demands);
            Some((runtime, refresh))
        } else {
            None
        };
        if let (Some(demands), Some(waiter)) = (&state.demands, waiter) {
            // If the task has just gone, the waiter is dropped, and its receiver asks anew.
            drop(demands.send(waiter));
        }
        spawn
    }

    /// Does something under the lock, and tells of what came of it when that is given back.
    fn locked<T>(&self, work: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        self.locked_by(self.lock(), work)
    }

    fn locked_by<T>(
        &self,
        mut state: MutexGuard<'_, State>,
        work: impl FnOnce(&mut State, Timestamp) -> T,
    ) -> T {
        let done = work(&mut state, self.now());
        self.slot.hear(state.life.heard());
        let notices = state.life.notices();
        drop(state);
        // Whoever listens may ask back, or take its time.
        notices.into_iter().for_each(Notice::tell);
        done
    }

    /// A panic under the lock leaves no half-made state, so poison is no reason to stop.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wants for Shared {
    fn wants(&self, issued: &Issued) -> bool {
        self.locked(|state, now| state.life.wants_at(now, &fetched(issued)))
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

// === impl State ===

impl State {
    /// Drops a token that has expired.
    fn tidy(&mut self, slot: &Slot, now: Timestamp) {
        if self.token.is_some() && self.life.fresh_at(now).is_none() {
            self.token = None;
            slot.empty();
        }
    }
}

fn start(spawn: Option<(Handle, Refresh)>) {
    if let Some((runtime, refresh)) = spawn {
        drop(runtime.spawn(refresh.run()));
    }
}

fn fetched(issued: &Issued) -> Fetched {
    // Of this process alone, and no secret: it tells tokens apart.
    let mut fingerprint = DefaultHasher::new();
    issued.header.as_bytes().hash(&mut fingerprint);
    Fetched {
        fingerprint: fingerprint.finish(),
        sent: issued.sent,
        life: issued.life,
        own: issued.own,
    }
}

/// How often the task looks at the clocks while a token is in use, or a request under way, which bounds how long the end
/// of a suspension, or a step of the wall clock, goes unnoticed by a renewal. A look costs a
/// microsecond.
const BEAT: Duration = Duration::from_secs(5);
