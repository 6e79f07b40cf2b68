//! Connects that nobody waits for any more.
//!
//! A pool that finds a free connection after it has begun to connect lets the connecting go on
//! as a task of its own. If that task still waits for a permit it would wait for as long as
//! every permit is in use, keep the pool alive, and then open a socket that nobody asked for.

use std::{
    cell::Cell,
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::rt::Executor;
use pin_project_lite::pin_project;

use crate::request::held;

/// An executor that tells [`ConnectionLimit`](crate::ConnectionLimit) which connects nobody
/// waits for, so that they end instead of waiting for a permit.
///
/// Give it to the hyper-util client in place of the executor that it wraps. A connect that has
/// its permit goes on and serves a later request.
///
/// Those are the connects that began elsewhere and were left to a task here. What begins in such a
/// task waits for its permit as anywhere: a request body that makes a call when it is read.
///
/// # Examples
/// ```
/// use hyper_util::{
///     client::legacy::{Client, connect::HttpConnector},
///     rt::TokioExecutor,
/// };
/// use tower_layer::Layer;
/// use tower_tds_limits::{Background, ConnectionLimitLayer, Limiter, Limits};
///
/// let limiter = Limiter::new(Limits::default());
/// let connector = ConnectionLimitLayer::new(limiter).layer(HttpConnector::new());
/// let executor = Background::new(TokioExecutor::new());
/// let client: Client<_, String> = Client::builder(executor).build(connector);
/// # drop(client);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Background<E> {
    inner: E,
}

pin_project! {
    /// A task in the background.
    ///
    /// # Cancel safety
    /// Dropping it drops the task, with whatever permit that holds.
    pub struct BackgroundTask<F> {
        #[pin]
        task: F,
    }
}

// === impl Background ===

impl<E> Background<E> {
    /// Runs tasks on `inner`, and marks them as running in the background.
    pub const fn new(inner: E) -> Self {
        Self { inner }
    }
}

impl<E, F> Executor<F> for Background<E>
where
    E: Executor<BackgroundTask<F>>,
{
    fn execute(&self, task: F) {
        // A pool that leaves a connect to a task has another connection for the call that began it, and
        // sends it in this very poll.
        held(false);
        self.inner.execute(BackgroundTask { task });
    }
}

// === impl BackgroundTask ===

impl<F: Future> Future for BackgroundTask<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let _until_the_end_of_this_poll = Mark::set();
        self.project().task.poll(cx)
    }
}

impl<F> fmt::Debug for BackgroundTask<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundTask").finish_non_exhaustive()
    }
}

/// Marks this thread as polling a background task. Its drop restores what was, also when the
/// task panics.
struct Mark {
    before: bool,
}

// === impl Mark ===

impl Mark {
    fn set() -> Self {
        Self {
            before: MARKED.replace(true),
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        MARKED.set(self.before);
    }
}

/// Where a connect began: whether in a background task. Whoever waits for it is in one too, and not
/// always in the same: HTTP/2 moves bodies that are slow to come from its connection's task to one of
/// their own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    in_background: bool,
}

// === impl Begun ===

impl Begun {
    pub(super) fn here() -> Self {
        Self {
            in_background: MARKED.get(),
        }
    }

    /// Whether whoever polls it goes on with what nobody waits for any more.
    pub(super) fn is_orphaned(self) -> bool {
        !self.in_background && MARKED.get()
    }
}

thread_local! {
    static MARKED: Cell<bool> = const { Cell::new(false) };
}

#[cfg(test)]
mod tests;
