//! What concerns one credential among those that share an IP address: the pause after a 429.

mod pause;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;

use self::pause::Pause;
use crate::{
    LimitError, Limits, clock,
    connection::Connections,
    gate::{Gate, Line, Waiter},
    requests::Requests,
};

/// One credential's pause, and the limits that it shares with others.
#[derive(Debug)]
pub(crate) struct Credential {
    requests: Arc<Gate<Requests>>,
    connections: Arc<Gate<Connections>>,
    max_wait: Option<Duration>,
    line: Line,
    /// Set while the gate lets nobody through, so that others need not ask it. It is read without
    /// the gate's lock, and a reader may be late by one request: that one is refused like the
    /// others in flight.
    paused: AtomicBool,
    pause: Arc<Gate<Pause>>,
}

/// Waits while a credential pauses. Made by the first request that has to.
#[derive(Default)]
pub(crate) struct PauseWaiter {
    /// And since when.
    waiter: Option<(Waiter<Pause>, Instant)>,
}

/// The turn to try whether a pause is over. Dropped before the request is sent, it lets another
/// try.
#[derive(Debug)]
pub(crate) struct Probe {
    /// `None` once the request is sent.
    credential: Option<Arc<Credential>>,
}

// === impl Credential ===

impl Credential {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self::behind(
            Arc::new(Gate::new(Requests::new(limits))),
            Arc::new(Gate::new(Connections::new(limits))),
            limits.wait(),
            Line::Back,
        )
    }

    /// Another one behind the same limits.
    pub(crate) fn another(&self, line: Line) -> Self {
        Self::behind(
            Arc::clone(&self.requests),
            Arc::clone(&self.connections),
            self.max_wait,
            line,
        )
    }

    fn behind(
        requests: Arc<Gate<Requests>>,
        connections: Arc<Gate<Connections>>,
        max_wait: Option<Duration>,
        line: Line,
    ) -> Self {
        Self {
            requests,
            connections,
            max_wait,
            line,
            paused: AtomicBool::new(false),
            pause: Arc::new(Gate::new(Pause::new())),
        }
    }

    pub(crate) fn requests(&self) -> &Arc<Gate<Requests>> {
        &self.requests
    }

    pub(crate) fn connections(&self) -> &Arc<Gate<Connections>> {
        &self.connections
    }

    pub(crate) fn line(&self) -> Line {
        self.line
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Until when it pauses, if it does.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.pause.read(|pause, _| pause.told().max(pause.until()))
    }

    /// How many wait for the end of the pause.
    pub(crate) fn waiting(&self) -> usize {
        self.pause.read(|_, waiting| waiting)
    }

    /// A request was refused because the credential has made too many. Gives for how long it
    /// pauses if that is news.
    pub(crate) fn refuse(&self, hint: Option<Duration>, tried: bool) -> Option<Duration> {
        self.pause.update_now(|pause, now| {
            self.paused.store(true, Ordering::Relaxed);
            pause.refuse(now, hint, tried)
        })
    }

    /// The request that tried was accepted: the pause is over for all.
    pub(crate) fn accept(&self) {
        self.pause.update(|pause| {
            pause.end();
            self.paused.store(false, Ordering::Relaxed);
        });
    }

    /// The request that tried got no answer: another may.
    pub(crate) fn untried(&self) {
        self.pause.update(Pause::untried);
    }

    /// Goes on if it pauses no more, or if it is this one's turn to try.
    ///
    /// # Errors
    /// It would have to wait.
    pub(crate) fn try_over(self: &Arc<Self>) -> Result<Option<Probe>, LimitError> {
        if !self.is_paused() {
            return Ok(None);
        }
        match self.pause.try_pass(self.line) {
            Ok(tries) => Ok(self.probe(tries)),
            Err(_) => Err(self.rejection()),
        }
    }

    fn probe(self: &Arc<Self>, tries: bool) -> Option<Probe> {
        tries.then(|| Probe {
            credential: Some(Arc::clone(self)),
        })
    }

    /// When to try again, as an error for one who does not wait. Nobody can tell while one tries.
    fn rejection(&self) -> LimitError {
        let now = clock::now();
        let until = self.paused_until().filter(|until| *until > now);
        LimitError::paused(until.map(|until| until.saturating_duration_since(now)))
    }

    /// Whether the pause is too long to wait for. Once it should have been over it is as any other.
    fn is_told(&self) -> bool {
        let now = clock::now();
        self.pause
            .read(|pause, _| pause.told().is_some_and(|told| told > now))
    }
}

// === impl PauseWaiter ===

impl PauseWaiter {
    /// Waits until the credential pauses no more, or until it is this one's turn to try. `since`
    /// is when the wait began, if that was before the pause.
    ///
    /// # Errors
    /// When the longest wait has passed, or when the service says that it will be very long.
    pub(crate) fn poll_over(
        &mut self,
        credential: &Arc<Credential>,
        since: Option<Instant>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Probe>, LimitError>> {
        let (waiter, _) = self.waiter.get_or_insert_with(|| {
            let since = since.unwrap_or_else(clock::now);
            let pause = Arc::clone(&credential.pause);
            let mut waiter = Waiter::new(pause, credential.line, credential.max_wait);
            waiter.waiting_since(since);
            (waiter, since)
        });
        let Poll::Ready(over) = waiter.poll_pass(cx) else {
            return if credential.is_told() {
                Poll::Ready(Err(credential.rejection()))
            } else {
                Poll::Pending
            };
        };
        Poll::Ready(over.map(|tries| credential.probe(tries)))
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waiter.is_some()
    }

    /// Since when somebody has waited here, if anybody has.
    pub(crate) fn take_since(&mut self) -> Option<Instant> {
        self.waiter.take().map(|(_, since)| since)
    }
}

impl fmt::Debug for PauseWaiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PauseWaiter").finish_non_exhaustive()
    }
}

// === impl Probe ===

impl Probe {
    /// The request is sent, and its permit takes over.
    pub(crate) fn hand_over(mut self) {
        self.credential = None;
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if let Some(credential) = &self.credential {
            credential.untried();
        }
    }
}
