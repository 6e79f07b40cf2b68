//! The flight: one token request that any number of callers wait for.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{
    FutureExt as _,
    future::{self, BoxFuture},
};
use tokio::time::{Sleep, sleep_until, timeout};

use super::shared::Shared;
use crate::{TokenError, error::Kind, request::Issued};

#[cfg(test)]
mod tests;

/// A token request under way. Every clone polls it, so dropping one changes nothing.
pub(crate) type Flight = future::Shared<BoxFuture<'static, Result<(), TokenError>>>;

/// The wait of one call for a token: `Unpin`, for `poll_ready`.
#[derive(Debug, Default)]
pub(crate) struct Wait(Option<Waiting>);

#[derive(Debug)]
struct Waiting {
    flight: Flight,
    timer: Pin<Box<Sleep>>,
    /// Whether the token in use may be sent at the end of the timer.
    has_token: bool,
}

// === impl Wait ===

impl Wait {
    /// Resolves when the token in use may be sent, or to the reason why there is none.
    pub(crate) fn poll(
        &mut self,
        shared: &Shared,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), TokenError>> {
        // The flight of a driver whose runtime has ended makes no progress.
        self.0.take_if(|waiting| !shared.is_driven(&waiting.flight));
        loop {
            let waiting = match &mut self.0 {
                Some(waiting) => waiting,
                None => {
                    let Some((flight, until)) = (match shared.enter() {
                        Ok(entered) => entered,
                        Err(error) => return Poll::Ready(Err(error)),
                    }) else {
                        return Poll::Ready(Ok(()));
                    };
                    let patience = shared.now().steady + shared.settings.patience.min(LONGEST);
                    self.0.insert(Waiting {
                        flight,
                        timer: Box::pin(sleep_until(until.unwrap_or(patience))),
                        has_token: until.is_some(),
                    })
                }
            };
            let has_ended = waiting.flight.poll_unpin(cx).is_ready();
            let is_over = !has_ended && waiting.timer.as_mut().poll(cx).is_ready();
            let Some(waiting) = self.0.take_if(|_| has_ended || is_over) else {
                return Poll::Pending;
            };
            // After a flight it looks again: a kept service may be polled long after that.
            if is_over {
                return Poll::Ready(if waiting.has_token {
                    Ok(())
                } else {
                    Err(shared.abandon(&waiting.flight))
                });
            }
        }
    }
}

/// Fetches a token, records the outcome, and saves the token before the waiters return: a program
/// may end as soon as it has a token.
///
/// The shared state holds the flight, so the flight holds it weakly across each `.await`.
pub(super) async fn fetch(weak: Weak<Shared>) -> Result<(), TokenError> {
    let issued = AssertUnwindSafe(request(&weak)).catch_unwind().await;
    let issued = issued.unwrap_or_else(|_| Err(TokenError::new(Kind::Panicked)));
    let own = issued.as_ref().ok().filter(|it| it.fetched.is_own).cloned();
    let shared = alive(&weak)?;
    let outcome = shared.settle(issued);
    let leases = shared.leases.clone();
    drop(shared);
    if let Some(leases) = leases {
        let saved = async {
            leases
                .lock()
                .await
                .save(own.filter(|_| outcome.is_ok()))
                .await
        };
        // A store that panics has saved nothing.
        drop(AssertUnwindSafe(saved).catch_unwind().await);
    }
    outcome
}

/// Requests a token with the credentials of the moment, or takes that of another process.
async fn request(weak: &Weak<Shared>) -> Result<Issued, TokenError> {
    let shared = alive(weak)?;
    let (provider, limit) = (shared.settings.provider.clone(), shared.settings.timeout);
    let leases = shared.leases.clone();
    drop(shared);
    let provided = AssertUnwindSafe(timeout(limit, provider.provide()));
    let credentials = match provided.catch_unwind().await {
        Ok(Ok(provided)) => provided,
        Ok(Err(_)) => Err("the provider took too long".into()),
        Err(_) => Err("the provider panicked".into()),
    };
    let credentials = credentials.map_err(|error| TokenError::no_credentials(&*error))?;
    let wants = |issued: &Issued| weak.upgrade().is_some_and(|shared| shared.wants(issued));
    if let Some(leases) = leases
        && let Some(issued) = leases.lock().await.find(&credentials, wants).await
    {
        return Ok(issued);
    }
    let grant = Arc::clone(&alive(weak)?.grant);
    grant.fetch(&credentials).await
}

fn alive(weak: &Weak<Shared>) -> Result<Arc<Shared>, TokenError> {
    weak.upgrade()
        .ok_or_else(|| TokenError::new(Kind::NoRuntime))
}

/// The end of a wait that no clock can show.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
