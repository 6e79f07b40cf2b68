//! Account of the sockets, which decides whether one more may be opened. It is arithmetic on `now`.

use std::{
    collections::VecDeque,
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    sync::{Notify, futures::OwnedNotified},
    time::Instant,
};

use crate::{
    account::reactions::Sockets,
    clock,
    error::WaitCause,
    limits::Limits,
    wait::{Limit, Line, Opens, Terms, shared::Shared},
};

/// Sockets from the permit before `connect` until the server has closed them.
#[derive(Debug)]
pub(crate) struct Connections {
    most: u32,
    data: u32,
    /// Sockets of token requests, whose limiter is first in line.
    tokens: u32,
    /// Dropped permits that are kept for [`LINGERS`], in the order in which they go back.
    lingering: VecDeque<(Instant, Line)>,
    /// Limits after a 416, as the account has set them.
    closed: Sockets,
    /// When the [share](crate::Share) ends, if there is one.
    closes_at: Option<Instant>,
    /// Whether there is a share. If there is none, sockets take no lock to check its end.
    is_shared: Arc<AtomicBool>,
    /// Number of shares whose end has closed all sockets.
    ended: u64,
    /// Notified after each such end.
    over: Arc<Notify>,
}

/// Permit of one socket.
///
/// If it is dropped, it is kept for one more second, because the server may still accept or count
/// the connection. [`release`](Self::release) gives it back at once.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    shared: Arc<Shared<Connections>>,
    /// `None` once it was given back.
    line: Option<Line>,
    /// How many shares had ended when the permit was taken.
    ended: u64,
    is_shared: Arc<AtomicBool>,
    over: Pin<Box<OwnedNotified>>,
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
            lingering: VecDeque::new(),
            closed: Sockets::default(),
            closes_at: None,
            is_shared: Arc::default(),
            ended: 0,
            over: Arc::default(),
        }
    }

    /// Changes the limit, and opens nothing from `until` on. Open sockets stay, even if they are
    /// more than the limit. If `until` has passed, all sockets are closed, and the caller notifies
    /// their readers.
    #[must_use = "readers are notified after the lock is released"]
    pub(crate) fn set_share(
        &mut self,
        most: u32,
        until: Instant,
        now: Instant,
    ) -> Option<Arc<Notify>> {
        self.most = most;
        self.closes_at = Some(until);
        // Relaxed: the notification comes later, and a notified reader checks again.
        self.is_shared.store(true, Ordering::Relaxed);
        self.ended += u64::from(until <= now);
        (until <= now).then(|| Arc::clone(&self.over))
    }

    /// Returns the number of permits at `now`, including dropped ones that are still kept.
    pub(crate) fn open(&mut self, now: Instant) -> u32 {
        while let Some((at, line)) = self.lingering.front().copied()
            && at <= now
        {
            self.lingering.pop_front();
            *self.count(line) -= 1;
        }
        self.data + self.tokens
    }

    /// How many may be open at `now`.
    pub(crate) fn most_at(&self, now: Instant) -> u32 {
        let lowered = self.closed.lowered.filter(|(_, until)| now < *until);
        lowered.map_or(self.most, |(most, _)| most.min(self.most))
    }

    /// When connects begin again, if a 416 has stopped them.
    fn silent_until(&self, now: Instant) -> Option<Instant> {
        self.closed.connects_at.filter(|until| now < *until)
    }

    /// Applies what the account has closed.
    pub(crate) fn close(&mut self, closed: Sockets) {
        self.closed = closed;
    }

    fn release(&mut self, line: Line) {
        *self.count(line) -= 1;
    }

    fn linger(&mut self, line: Line, now: Instant) {
        self.lingering.push_back((now + LINGERS, line));
    }

    fn count(&mut self, line: Line) -> &mut u32 {
        match line {
            Line::Front => &mut self.tokens,
            Line::Back => &mut self.data,
        }
    }
}

impl Limit for Connections {
    type Grant = Line;

    fn opens(&mut self, line: Line, now: Instant) -> Opens {
        if self.closes_at.is_some_and(|closes_at| closes_at <= now) {
            return Opens::OnReturn;
        }
        if let Some(until) = self.silent_until(now) {
            return Opens::At(until);
        }
        let most = self.most_at(now);
        let has_room = self.open(now) < most;
        // The last place is for a token request, without which no data request can be sent.
        if has_room && (line == Line::Front || most == 1 || self.data < most - 1) {
            return Opens::Now;
        }
        let returns = self.lingering.front().map(|(at, _)| *at);
        let rises = self.closed.lowered.map(|(_, until)| until);
        let times = [returns, rises.filter(|until| now < *until)];
        match times.into_iter().flatten().min() {
            Some(at) => Opens::At(at),
            None => Opens::OnReturn,
        }
    }

    fn admit(&mut self, line: Line, _terms: &Terms, _now: Instant) -> Line {
        *self.count(line) += 1;
        line
    }

    fn cause(&mut self, _line: Line, now: Instant) -> WaitCause {
        match self.silent_until(now) {
            _ if self.closes_at.is_some_and(|at| at <= now) => WaitCause::Share,
            Some(_) => WaitCause::Silence,
            None => WaitCause::Connection,
        }
    }
}

// === impl ConnectionPermit ===

impl ConnectionPermit {
    pub(crate) fn new(shared: &Arc<Shared<Connections>>, line: Line) -> Self {
        let (ended, is_shared, over) = shared.read(|connections, _| {
            let over = Arc::clone(&connections.over).notified_owned();
            (connections.ended, Arc::clone(&connections.is_shared), over)
        });
        Self {
            shared: Arc::clone(shared),
            line: Some(line),
            ended,
            is_shared,
            over: Box::pin(over),
            waker: None,
        }
    }

    /// Checks that the share in which the socket was opened has not ended.
    ///
    /// # Errors
    /// If that share has ended.
    pub(crate) fn check(&self) -> io::Result<()> {
        if !self.is_shared.load(Ordering::Relaxed) {
            return Ok(());
        }
        let is_over = self.shared.read(|connections, _| {
            let ends = connections.closes_at;
            self.ended < connections.ended || ends.is_some_and(|at| at <= clock::now())
        });
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

    /// Gives the permit back at once, because the server has no connection.
    pub(crate) fn release(mut self) {
        if let Some(line) = self.line.take() {
            self.shared.update(|connections| connections.release(line));
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            let linger = |connections: &mut Connections, now| connections.linger(line, now);
            self.shared.update_now(linger);
        }
    }
}

/// Time in which a segment surely reaches the server. A second is three times the longest stalls
/// that were simulated (300 ms), and the next connect takes the same path.
pub(crate) const LINGERS: Duration = Duration::from_secs(1);

const OVER: &str = "closed at the end of its share of the fleet's limits";

#[cfg(test)]
mod tests;
