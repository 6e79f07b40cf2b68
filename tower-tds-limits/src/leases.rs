//! Leases: how limiters of several processes keep one quota together.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use crate::{LimitError, Outcome};

/// Where each request gets a lease, last of all it waits for: after any pause, a place in flight and a
/// permit of its own process.
///
/// The permits of one process keep a quota by proof; leases do the same for all processes that are
/// asked for theirs at one place. An implementation is `tower-tds-fleet`, over Redis.
///
/// # Cancel safety
/// Dropping the future gives up the wait. A lease that was granted meanwhile goes back unused.
pub trait Leases: fmt::Debug + Send + Sync + 'static {
    /// Waits for a lease, for `max_wait` at the most. With zero it asks once, and waits for nothing
    /// but the answer.
    ///
    /// # Errors
    /// [`LimitError::timed_out`] and [`LimitError::rejected`]; in the future.
    fn lease(&self, ask: AskLease) -> LeaseFuture;
}

/// One request's lease, from just before it is sent.
///
/// Dropped without an [`end`](Self::end), it says nothing: its place is free when it is over.
pub trait Lease: fmt::Debug + Send + Sync {
    /// Ready when the lease could not be kept, and whatever is under way has to end now. Asked before each poll
    /// of the call.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// What came of the request.
    fn end(self: Box<Self>, ended: Ended);
}

/// What [`Leases::lease`] gives.
pub type LeaseFuture = Pin<Box<dyn Future<Output = Result<Box<dyn Lease>, LimitError>> + Send>>;

/// What a lease is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AskLease {
    /// Whether it goes before all others of this process: [`Limiter::first_in_line`](crate::Limiter::first_in_line).
    pub first_in_line: bool,
    /// The longest wait, if it is bounded.
    pub max_wait: Option<Duration>,
}

/// What came of a leased request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// It has been counted by now, and this is what was answered.
    Proven(Outcome),
    /// No proof will come: it is counted within this time, if at all.
    Within(Duration),
    /// It was never sent.
    Unsent,
}
