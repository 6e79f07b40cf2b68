//! The wait of one call for a token.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::time::{Sleep, sleep_until};

use super::shared::{Joined, Shared};
use crate::TokenError;

/// Waits for a token that may be sent. It is `Unpin`, for `poll_ready`.
#[derive(Debug, Default)]
pub(crate) struct Wait(Option<Waiting>);

#[derive(Debug)]
struct Waiting {
    flight: Joined,
    timer: Pin<Box<Sleep>>,
    /// Whether a token may be sent when the timer fires. Otherwise the flight makes no progress then.
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
        self.0
            .take_if(|waiting| !shared.is_driven(&waiting.flight.0));
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
                    let longest = shared.now().steady + shared.grant.longest_flight().min(LONGEST);
                    self.0.insert(Waiting {
                        flight,
                        timer: Box::pin(sleep_until(until.unwrap_or(longest))),
                        has_token: until.is_some(),
                    })
                }
            };
            let has_ended = waiting.flight.0.poll_unpin(cx).is_ready();
            let is_over = !has_ended && waiting.timer.as_mut().poll(cx).is_ready();
            let Some(waiting) = self.0.take_if(|_| has_ended || is_over) else {
                return Poll::Pending;
            };
            // After a flight the state is read again: the service may be polled long after its end.
            if is_over {
                return Poll::Ready(if waiting.has_token {
                    Ok(())
                } else {
                    Err(shared.abandon(&waiting.flight.0))
                });
            }
        }
    }
}

/// The longest wait. It keeps the sum with the clock from overflow.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
