//! The wait of one call for a token.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::time::{Sleep, sleep_until};

use super::shared::{Flight, Shared};
use crate::TokenError;

/// It is `Unpin`, for `poll_ready`.
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
                    let patience = shared.now().steady + shared.grant.patience().min(LONGEST);
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

/// The end of a wait that no clock can show.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
