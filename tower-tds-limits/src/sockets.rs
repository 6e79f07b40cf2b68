//! Account of the sockets, which decides whether one more may be opened. It is arithmetic on `now`.

use std::{
    fmt,
    future::Future,
    io, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use crate::{
    clock,
    error::WaitCause,
    limits::Limits,
    wait::{CallDeadline, Limit, Priority, shared::Shared},
};

/// Sockets from the permit before `connect` until the server has closed them.
#[derive(Debug)]
pub(crate) struct Connections {
    most: u32,
    data: u32,
    /// Sockets of token requests, whose limiter is first in line.
    tokens: u32,
    /// Permits that go back later, and when.
    returning: Vec<(Instant, Priority)>,
    /// Limit after a 416, as the account has set it, and until when it applies.
    pub(crate) lowered: Option<(u32, Instant)>,
    /// When the [share](crate::Share) ends, if there is one. Dropped at its end, which closes all sockets.
    ends: watch::Sender<Option<Instant>>,
}

/// Permit of one socket.
///
/// If it is dropped, it [goes back](Self::give_back) a second later, because the server may still accept or count
/// the connection.
pub(crate) struct ConnectionPermit {
    shared: Arc<Shared<Connections>>,
    /// `None` once it was given back.
    priority: Option<Priority>,
    /// When the share ends in which the socket was opened.
    ends: watch::Receiver<Option<Instant>>,
    /// Ends when that share has been ended.
    over: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    /// Waker that is registered for the end of the share.
    waker: Option<Waker>,
}

// === impl Connections ===

impl Connections {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            most: limits.connections.get(),
            data: 0,
            tokens: 0,
            returning: Vec::new(),
            lowered: None,
            ends: watch::Sender::new(None),
        }
    }

    /// Changes the limit, and opens nothing from `until` on. Open sockets stay, even if they are
    /// more than the limit. If `until` has passed, the drop of what this returns closes them.
    #[must_use = "it is dropped after the lock is released"]
    pub(crate) fn set_share(
        &mut self,
        most: u32,
        until: Instant,
        now: Instant,
    ) -> Option<impl Sized + use<>> {
        self.most = most;
        if until <= now {
            return Some(mem::replace(
                &mut self.ends,
                watch::Sender::new(Some(until)),
            ));
        }
        // No reader has to know a later end.
        self.ends.send_if_modified(|ends| {
            *ends = Some(until);
            false
        });
        None
    }

    /// Whether the share has ended.
    fn is_over(&self, now: Instant) -> bool {
        self.ends.borrow().is_some_and(|ends| ends <= now)
    }

    /// Returns the number of permits at `now`, including dropped ones that are still kept.
    pub(crate) fn open(&mut self, now: Instant) -> u32 {
        while let Some(next) = self.returning.iter().position(|(at, _)| *at <= now) {
            let (_, priority) = self.returning.swap_remove(next);
            *self.count(priority) -= 1;
        }
        self.data + self.tokens
    }

    /// How many may be open at `now`.
    pub(crate) fn most_at(&self, now: Instant) -> u32 {
        let lowered = self.lowered.filter(|(_, until)| now < *until);
        lowered.map_or(self.most, |(most, _)| most.min(self.most))
    }

    fn count(&mut self, priority: Priority) -> &mut u32 {
        match priority {
            Priority::High => &mut self.tokens,
            Priority::Normal => &mut self.data,
        }
    }
}

impl Limit for Connections {
    type Granted = Priority;

    fn opens(&mut self, priority: Priority, now: Instant) -> (Option<Instant>, WaitCause) {
        if self.is_over(now) {
            return (None, WaitCause::Share(None));
        }
        let most = self.most_at(now);
        let has_room = self.open(now) < most;
        // The last socket is for a token request, without which no data request can be sent.
        if has_room && (priority == Priority::High || most == 1 || self.data < most - 1) {
            return (Some(now), WaitCause::Connection);
        }
        let returns = self.returning.iter().map(|(at, _)| *at);
        let rises = self.lowered.map(|(_, until)| until);
        let times = returns.chain(rises.filter(|until| now < *until));
        (times.min(), WaitCause::Connection)
    }

    fn admit(&mut self, priority: Priority, _: Option<&CallDeadline>) -> Priority {
        *self.count(priority) += 1;
        priority
    }
}

// === impl ConnectionPermit ===

impl ConnectionPermit {
    pub(crate) fn new(shared: &Arc<Shared<Connections>>, priority: Priority) -> Self {
        let ends = shared.read(|connections, _| connections.ends.subscribe());
        let mut over = ends.clone();
        Self {
            shared: Arc::clone(shared),
            priority: Some(priority),
            ends,
            over: Box::pin(async move { while over.changed().await.is_ok() {} }),
            waker: None,
        }
    }

    /// Checks that the share in which the socket was opened has not ended.
    ///
    /// # Errors
    /// If that share has ended.
    pub(crate) fn check(&self) -> io::Result<()> {
        let is_over = self.ends.has_changed().is_err()
            || self.ends.borrow().is_some_and(|ends| ends <= clock::now());
        if is_over {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, OVER));
        }
        Ok(())
    }

    /// Waits until the socket's share has ended, then returns the error of [`check`](Self::check).
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        // Registers the waker before the check, so that no end is missed, and once for each task,
        // so that a pending read takes no lock.
        let waker = self.waker.as_ref();
        if !waker.is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
            let _registered = self.over.as_mut().poll(cx);
        }
        self.check().map_or_else(Poll::Ready, |()| Poll::Pending)
    }

    /// Gives the permit back at a time, when the server has no connection any more.
    pub(crate) fn give_back(&mut self, at: Instant) {
        if let Some(priority) = self.priority.take() {
            let returns = |sockets: &mut Connections| sockets.returning.push((at, priority));
            self.shared.update(returns);
        }
    }
}

impl fmt::Debug for ConnectionPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionPermit").finish_non_exhaustive()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.give_back(clock::now() + LINGERS);
    }
}

/// Time in which a segment surely reaches the server. A second is three times the longest stalls
/// that were simulated (300 ms), and the next connect takes the same path.
pub(crate) const LINGERS: Duration = Duration::from_secs(1);

const OVER: &str = "closed at the end of its share of the fleet's limits";

#[cfg(test)]
mod tests;
