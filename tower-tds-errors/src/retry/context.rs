//! The context of an attempt: words between a retry and the layers below while it calls and polls them.
//!
//! They tell it in turn what they know while they are pending: only who knows something is polled when there
//! is no more time, because whoever does not might send in that poll.
//!
//! It is told by thread: in the request's extensions it would be an allocation for each call. What
//! calls or polls from elsewhere, the worker of a `Buffer` say, hears nothing and does without.

use std::cell::Cell;

thread_local! {
    /// Whether this poll is the last before the attempt is dropped.
    static LAST_POLL: Cell<bool> = const { Cell::new(false) };
    /// What was said last in the poll that is going on.
    static KNOWN: Cell<Known> = const { Cell::new(Known::Nothing) };
}

/// What a pending attempt knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Nothing,
    /// The status is there, and the body of an error is being read.
    Answer,
    /// It is a retry, which has attempts of its own.
    Retry,
    /// The answer is there, and held until there is another token.
    Held,
}

/// Puts back whether the poll is the last, after a panic too.
struct Restored(bool);

/// Polls with word that there will be no other poll: who knows a status can say so now or never.
pub(super) fn last_poll<T>(poll: impl FnOnce() -> T) -> T {
    // A thread that is ending tells nothing.
    let before = LAST_POLL.try_with(|told| told.replace(true)).ok();
    let _restored = before.map(Restored);
    poll()
}

/// Says what a pending attempt knows.
#[inline]
pub(crate) fn say(known: Known) {
    // A thread that is ending hears nothing.
    KNOWN.try_with(|said| said.set(known)).ok();
}

/// Says to a retry above that an answer is there, and is held while something else is waited for; and
/// whether it may be held any longer. Call it from each poll that is pending for that.
///
/// For a layer that keeps a 401 until there is another token: that wait is no attempt's time, and at the
/// deadline the answer is what the call ends by. Without a retry in this task it may be held.
///
/// # Examples
///
/// ```
/// use std::{future::poll_fn, task::Poll, time::Duration};
/// use http::{Request, Response};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_tds_errors::{Error, Kind, RetryLayer, may_hold};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let no_other_token = service_fn(async |_: Request<()>| {
///     let mut refused = Some(Error::new(Kind::InvalidToken, "it is revoked"));
///     poll_fn(move |_| match refused.take_if(|_| !may_hold()) {
///         Some(refused) => Poll::Ready(Err::<Response<()>, _>(refused)),
///         None => Poll::Pending,
///     })
///     .await
/// });
/// let layer = RetryLayer::new().deadline(Duration::from_secs(2));
/// let error = layer.layer(no_other_token).oneshot(Request::new(())).await.unwrap_err();
/// assert_eq!(error.kind(), Kind::InvalidToken);
/// # }
/// ```
#[must_use]
pub fn may_hold() -> bool {
    say(Known::Held);
    !is_last_poll()
}

/// What the attempt has said that was just polled.
pub(super) fn known() -> Known {
    KNOWN.try_with(Cell::get).unwrap_or(Known::Nothing)
}

/// Whether this poll is the last one.
pub(crate) fn is_last_poll() -> bool {
    LAST_POLL.try_with(Cell::get) == Ok(true)
}

// === impl Restored ===

impl Drop for Restored {
    fn drop(&mut self) {
        LAST_POLL.try_with(|told| told.set(self.0)).ok();
    }
}
