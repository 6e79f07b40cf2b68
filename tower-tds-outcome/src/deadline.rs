//! The deadline of a call, and the hand-over of its request from the layers to the client.

#![expect(
    clippy::disallowed_types,
    reason = "this crate has no runtime; layers convert it into the instant of theirs"
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Instant,
};

use http::Extensions;

/// The deadline of a call, as an extension of its request.
///
/// Set it to bound a call in all layers at once. Nothing is sent after it, and a layer that is still waiting then
/// returns an error that names the cause of its wait, or passes on the response that it holds. Retry layers compare it
/// with their own deadline, and set the earlier one on each attempt. It also carries the [`HandOver`] of the request.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use tower_tds_outcome::DeadlineAt;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(DeadlineAt::new(Instant::now() + Duration::from_secs(5)));
/// assert!(DeadlineAt::of(request.extensions()).is_some());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadlineAt {
    /// When the call ends.
    pub at: Instant,
    /// Whether the deadline ends with the response body, and not with the head. Set it if you bound the body yourself: a
    /// limiter then expects calls to take as long as their bodies.
    pub covers_body: bool,
    hand_over: Option<HandOver>,
}

/// Decides whether a request was sent, as a part of its [`DeadlineAt`].
///
/// A layer that may give a call up [inserts](Self::insert) it. A client that knows when it sends a request marks two
/// points: [`hold`](Self::hold) when it gets the request, and [`take`](Self::take) right before it writes. Then a call
/// that was given up in between is known to be unsent, and stays unsent: one compare-and-swap decides. Without a
/// deadline, and over a client that marks nothing, each call may have been sent.
///
/// A request that is copied may have been sent from then on, because nothing shows how many copies are.
///
/// # Examples
///
/// A client of your own:
///
/// ```
/// use http::Request;
/// use tower_tds_outcome::{Cause, HandOver, Outcome};
///
/// async fn send(request: Request<String>) -> Result<(), Cause> {
///     let is_wanted = HandOver::hold(request.extensions());
///     // Wait for a connection here.
///     if !is_wanted || !HandOver::take(request.extensions()) {
///         return Err(Cause::new(Outcome::Unsent));
///     }
///     // Write the request here.
///     Ok(())
/// }
/// # drop(send(Request::new(String::new())));
/// ```
#[derive(Debug)]
pub struct HandOver(Arc<AtomicU8>);

/// Where a request is, as far as its client has marked it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Handed {
    /// No client has marked it, so it may have been sent.
    Unknown,
    /// A client has it, and has not begun to send it.
    Held,
    /// A client has begun to send it.
    Taken,
    /// The peer has ended the connection that it was sent on.
    Ended,
}

// === impl DeadlineAt ===

impl DeadlineAt {
    /// Creates a deadline at `at`; put it into the extensions of the request.
    #[inline]
    #[must_use]
    pub const fn new(at: Instant) -> Self {
        Self {
            at,
            covers_body: false,
            hand_over: None,
        }
    }

    /// Sets the deadline of a request, unless it has an earlier one. What it covers stays.
    #[inline]
    pub fn bound(extensions: &mut Extensions, at: Instant) {
        match extensions.get_mut::<Self>() {
            Some(deadline) => deadline.at = deadline.at.min(at),
            None => drop(extensions.insert(Self::new(at))),
        }
    }

    /// Returns the deadline in the extensions of a request.
    #[inline]
    #[must_use]
    pub fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }
}

// === impl HandOver ===

impl HandOver {
    /// Puts a new one into the deadline of a request, if it has one, and returns the layer's handle to it.
    #[inline]
    #[must_use]
    pub fn insert(extensions: &mut Extensions) -> Option<Self> {
        let deadline = extensions.get_mut::<DeadlineAt>()?;
        let state = Arc::new(AtomicU8::new(UNKNOWN));
        deadline.hand_over = Some(Self(Arc::clone(&state)));
        Some(Self(state))
    }

    /// Returns the client's handle to that of a request, if a layer has inserted one.
    #[inline]
    #[must_use]
    pub fn of(extensions: &Extensions) -> Option<Self> {
        let hand_over = DeadlineAt::of(extensions)?.hand_over.as_ref()?;
        Some(Self(Arc::clone(&hand_over.0)))
    }

    /// Marks, for a client, that the peer has ended or reset the connection instead of answering the request. So it has
    /// been counted, or will be soon.
    ///
    /// Don't mark the end of a tunnel, which shows nothing about the service, nor one that your side began.
    pub fn end(&self) {
        update(&self.0, |state| match state & !GIVEN_UP {
            TAKEN => state & GIVEN_UP | ENDED,
            _ => state,
        });
    }

    /// Marks, for a client, that it has the request and has not written any of it. If a connection turns out to be
    /// closed before the request was written, mark it again.
    ///
    /// Returns whether the request is still to be sent: if not, its caller has given it up.
    #[inline]
    #[must_use]
    pub fn hold(extensions: &Extensions) -> bool {
        Self::mark(extensions, HELD)
    }

    /// Marks, for a client, that it begins to write the request.
    ///
    /// Returns whether to send it: if not, its caller has given it up, and counts it as unsent.
    #[inline]
    #[must_use]
    pub fn take(extensions: &Extensions) -> bool {
        Self::mark(extensions, TAKEN)
    }

    /// Gives the call up, for the layer. Returns where the request was: if it was [held](Handed::Held), it will not be
    /// sent.
    #[inline]
    #[must_use]
    pub fn give_up(&self) -> Handed {
        handed(update(&self.0, |state| state | GIVEN_UP))
    }

    /// Returns where the request is.
    #[inline]
    #[must_use]
    pub fn place(&self) -> Handed {
        handed(self.0.load(Ordering::Acquire))
    }

    /// Changes the place of a request. Returns whether it was not given up.
    fn mark(extensions: &Extensions, place: u8) -> bool {
        let deadline = DeadlineAt::of(extensions);
        let Some(Self(state)) = deadline.and_then(|deadline| deadline.hand_over.as_ref()) else {
            return true;
        };
        let before = update(state, |state| if state <= TAKEN { place } else { state });
        before & GIVEN_UP == 0
    }
}

/// A copy can be sent at any time.
impl Clone for HandOver {
    fn clone(&self) -> Self {
        update(&self.0, |state| state & GIVEN_UP | COPIED);
        Self(Arc::clone(&self.0))
    }
}

/// Changes the state, and returns the one before.
#[inline]
fn update(state: &AtomicU8, change: impl Fn(u8) -> u8) -> u8 {
    // AcqRel: what the client did before it marked is visible to the layer, and the other way round.
    let updated = state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
        Some(change(state))
    });
    updated.unwrap_or_else(|state| state)
}

#[inline]
const fn handed(state: u8) -> Handed {
    match state & !GIVEN_UP {
        HELD => Handed::Held,
        TAKEN => Handed::Taken,
        ENDED => Handed::Ended,
        _ => Handed::Unknown,
    }
}

// The place of the request. ## UNKNOWN => HELD <=> TAKEN => ENDED, and any => COPIED
const UNKNOWN: u8 = 0;
const HELD: u8 = 1;
const TAKEN: u8 = 2;
/// Its peer has ended the connection.
const ENDED: u8 = 3;
/// Copied, so it is unknown which copies were sent.
const COPIED: u8 = 4;

/// Set besides the place once the call was given up, which then changes no more by a mark.
const GIVEN_UP: u8 = 8;

#[cfg(test)]
mod tests;
