//! What a retry tells the layers below while it calls and polls them.
//!
//! They tell it in turn what they know while they are pending: only who knows something is polled when there
//! is no more time, because whoever does not might send in that poll.
//!
//! It is told by thread: in the request's extensions it would be an allocation for each call. What
//! calls or polls from elsewhere, the worker of a `Buffer` say, hears nothing and does without.

use std::cell::Cell;

use http::{Request, Uri};

thread_local! {
    static TOLD: Cell<Told> = const { Cell::new(Told::NOTHING) };
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
}

#[derive(Clone, Copy)]
struct Told {
    /// Which request a retry is calling with.
    request: Option<Place>,
    /// Whether this poll is the last before the attempt is dropped.
    is_last: bool,
}

/// Where the bytes of a URI are, which says that it is the same one: moved, but not another.
type Place = [*const u8; 2];

/// Puts back what was told before, after a panic too.
struct Restored(Told);

/// Calls with word of who names the request in an error, so that nobody below writes it down once more.
#[inline]
pub(super) fn calling<B, T>(request: Request<B>, call: impl FnOnce(Request<B>) -> T) -> T {
    let told = Told {
        request: Some(place(request.uri())),
        is_last: false,
    };
    telling(told, || call(request))
}

/// Polls with word that there will be no other poll: who knows a status can say so now or never.
pub(super) fn last_poll<T>(poll: impl FnOnce() -> T) -> T {
    let told = Told {
        request: None,
        is_last: true,
    };
    telling(told, poll)
}

/// Whether a retry is calling with the request of this URI, and names it in an error.
#[inline]
pub(crate) fn names(uri: &Uri) -> bool {
    let told = TOLD.try_with(Cell::get).ok();
    told.and_then(|told| told.request) == Some(place(uri))
}

/// Before an attempt is polled: what others have said is not of it.
#[inline]
pub(super) fn forget() {
    say(Known::Nothing);
}

/// Says what a pending attempt knows.
#[inline]
pub(crate) fn say(known: Known) {
    // A thread that is ending hears nothing.
    KNOWN.try_with(|said| said.set(known)).ok();
}

/// What the attempt has said that was just polled.
pub(super) fn known() -> Known {
    KNOWN.try_with(Cell::get).unwrap_or(Known::Nothing)
}

/// Whether this poll is the last one.
pub(crate) fn is_last_poll() -> bool {
    TOLD.try_with(Cell::get).is_ok_and(|told| told.is_last)
}

#[inline]
fn telling<T>(told: Told, act: impl FnOnce() -> T) -> T {
    // A thread that is ending tells nothing.
    let before = TOLD.try_with(|place| place.replace(told));
    let _restored = before.ok().map(Restored);
    act()
}

fn place(uri: &Uri) -> Place {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    [authority.as_ptr(), uri.path().as_ptr()]
}

// === impl Told ===

impl Told {
    const NOTHING: Self = Self {
        request: None,
        is_last: false,
    };
}

// === impl Restored ===

impl Drop for Restored {
    fn drop(&mut self) {
        TOLD.try_with(|place| place.set(self.0)).ok();
    }
}
