//! The context of an attempt: words between a retry and the layers below while it calls and polls them.
//!
//! They tell it in turn what they know while they are pending: only who knows something is polled when there
//! is no more time, because whoever does not might send in that poll.
//!
//! It is told by thread: in the request's extensions it would be an allocation for each call. What
//! calls or polls from elsewhere, the worker of a `Buffer` say, hears nothing and does without.

use std::cell::Cell;
use std::thread::LocalKey;

use http::{Request, Uri, uri::Authority};

use super::request::Due;

thread_local! {
    static TOLD: Cell<Told> = const { Cell::new(Told::Nothing) };
    /// The deadlines of the call that is going on, if anybody has set them.
    static DUE: Cell<Option<Due>> = const { Cell::new(None) };
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
    /// Nothing has been sent: it waits for its turn.
    Unsent,
}

impl Known {
    /// Whether it waits for what is no attempt's time.
    pub(super) const fn is_wait(self) -> bool {
        matches!(self, Self::Held | Self::Unsent)
    }

    /// Whether there is something that it can say in a last poll. Who has sent nothing might send in that.
    pub(super) const fn can_say(self) -> bool {
        !matches!(self, Self::Nothing | Self::Unsent)
    }
}

/// What a call or a poll is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    /// A retry calls with this request, and names it in an error.
    Calling(Place),
    /// This poll is the last before the attempt is dropped.
    LastPoll,
}

/// Where the bytes of a URI are, which says that it is the same one, moved. One that was made where it
/// was dropped may have its place: then an error shows the old one, and that is all that hangs on it.
type Place = [*const u8; 2];

/// Puts back what was told before, after a panic too.
struct Restored<T: Copy + 'static>(&'static LocalKey<Cell<T>>, T);

/// Calls with word of who names the request in an error, so that nobody below writes it down once more.
#[inline]
pub(super) fn calling<B, T>(request: Request<B>, call: impl FnOnce(Request<B>) -> T) -> T {
    let told = Told::Calling(place(request.uri()));
    telling(&TOLD, told, || call(request))
}

/// Polls with word that there will be no other poll: who knows a status can say so now or never.
pub(super) fn last_poll<T>(poll: impl FnOnce() -> T) -> T {
    telling(&TOLD, Told::LastPoll, poll)
}

/// Calls or polls under these deadlines. Those that nobody has set are not told: each has its own.
#[inline]
pub(super) fn under<T>(due: Due, act: impl FnOnce() -> T) -> T {
    if due.is_set {
        telling(&DUE, Some(due), act)
    } else {
        act()
    }
}

/// The deadlines of a retry above, if anybody has set them.
#[inline]
pub(super) fn due() -> Option<Due> {
    DUE.try_with(Cell::get).ok().flatten()
}

/// Whether a retry is calling with the request of this URI, and names it in an error.
#[inline]
pub(crate) fn names(uri: &Uri) -> bool {
    TOLD.try_with(Cell::get) == Ok(Told::Calling(place(uri)))
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

/// Says to a retry above that the call that is polled has sent nothing yet, and waits for its turn. Call it from each
/// poll that is pending for that.
///
/// For a layer that waits in its response future: as what is waited for in `poll_ready`, that is no attempt's time, and a
/// call that ends meanwhile was never sent.
///
/// # Examples
///
/// ```
/// use std::{future::poll_fn, task::Poll, time::Duration};
/// use http::{Request, Response};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_tds_errors::{Error, Kind, RetryLayer, Sent, waits_to_send};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let no_turn = service_fn(async |_: Request<()>| {
///     poll_fn(|_| {
///         waits_to_send();
///         Poll::<Result<Response<()>, Error>>::Pending
///     })
///     .await
/// });
/// let layer = RetryLayer::new().deadline(Duration::from_secs(2));
/// let error = layer.layer(no_turn).oneshot(Request::new(())).await.unwrap_err();
/// assert_eq!((error.kind(), error.sent()), (Kind::Timeout, Sent::Never));
/// # }
/// ```
pub fn waits_to_send() {
    say(Known::Unsent);
}

/// What the attempt has said that was just polled.
pub(super) fn known() -> Known {
    KNOWN.try_with(Cell::get).unwrap_or(Known::Nothing)
}

/// Whether this poll is the last one.
pub(crate) fn is_last_poll() -> bool {
    TOLD.try_with(Cell::get) == Ok(Told::LastPoll)
}

#[inline]
fn place(uri: &Uri) -> Place {
    let authority = uri.authority().map_or("", Authority::as_str);
    [authority.as_ptr(), uri.path().as_ptr()]
}

#[inline]
fn telling<C: Copy, T>(place: &'static LocalKey<Cell<C>>, told: C, act: impl FnOnce() -> T) -> T {
    // A thread that is ending tells nothing.
    let before = place.try_with(|place| place.replace(told)).ok();
    let _restored = before.map(|before| Restored(place, before));
    act()
}

// === impl Restored ===

impl<T: Copy> Drop for Restored<T> {
    fn drop(&mut self) {
        self.0.try_with(|place| place.set(self.1)).ok();
    }
}
