//! Connects that nobody waits for any more.
//!
//! A pool that finds a free connection after it has begun to connect lets the connecting go on
//! as a task of its own. If that task still waits for a permit it would wait for as long as
//! every permit is in use, keep the pool alive, and then open a socket that nobody asked for.

use std::{
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
    #[derive(Debug)]
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
        let task = self.project().task;
        IN_BACKGROUND.sync_scope((), || task.poll(cx))
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
            in_background: is_in_background(),
        }
    }

    /// Whether whoever polls it goes on with what nobody waits for any more.
    pub(super) fn is_orphaned(self) -> bool {
        !self.in_background && is_in_background()
    }
}

fn is_in_background() -> bool {
    IN_BACKGROUND.try_with(|()| ()).is_ok()
}

tokio::task_local! {
    /// There while a background task is polled.
    static IN_BACKGROUND: ();
}

#[cfg(test)]
mod tests;
