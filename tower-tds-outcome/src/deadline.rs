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
/// assert!(request.extensions().get::<DeadlineAt>().is_some());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadlineAt {
    /// When the call ends.
    pub at: Instant,
    /// Whether the deadline ends with the response body, and not with the head. Set it if you bound the body yourself: a
    /// limiter then expects calls to take as long as their bodies.
    pub covers_body: bool,
    hand_over: HandOver,
}

/// Decides whether a request was sent, as a part of its [`DeadlineAt`].
///
/// A layer that may give a call up [inserts](Self::insert) it. A client that knows when it sends a request
/// [marks](Self::mark) two points: that it [holds](Handed::Held) the request when it gets it, and that it has
/// [taken](Handed::Taken) it right before it writes. Then a call that was given up in between is known to be unsent, and
/// stays unsent: one compare-and-swap decides. Without a deadline, and over a client that marks nothing, each call may
/// have been sent.
///
/// A request that is copied may have been sent from then on, because nothing shows how many copies are.
///
/// # Examples
///
/// A client of your own:
///
/// ```
/// use http::Request;
/// use tower_tds_outcome::{Cause, HandOver, Handed, Outcome};
///
/// async fn send(request: Request<String>) -> Result<(), Cause> {
///     let mut hand_over = HandOver::of(request.extensions());
///     let is_wanted = hand_over.mark(Handed::Held);
///     // Wait for a connection here.
///     if !is_wanted || !hand_over.mark(Handed::Taken) {
///         return Err(Cause::new(Outcome::Unsent));
///     }
///     // Write the request here.
///     Ok(())
/// }
/// # drop(send(Request::new(String::new())));
/// ```
#[derive(Debug)]
pub struct HandOver(Option<Arc<AtomicU8>>);

/// Where a request is, as far as its client has marked it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Handed {
    /// No client has marked it, so it may have been sent.
    Unknown,
    /// A client has it, and has not begun to send it. If its connection turns out to be closed before the request was
    /// written, the client marks it like this again.
    Held,
    /// A client has begun to send it.
    Taken,
    /// The peer has ended or reset the connection that it was sent on, instead of answering. So it has been counted, or
    /// will be soon.
    ///
    /// Don't mark the end of a tunnel, which shows nothing about the service, or one that your side began.
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
            hand_over: HandOver(None),
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
}

// === impl HandOver ===

impl HandOver {
    /// Puts a new one into the deadline of a request, if it has one, and returns the layer's handle to it.
    #[inline]
    #[must_use]
    pub fn insert(extensions: &mut Extensions) -> Self {
        let Some(deadline) = extensions.get_mut::<DeadlineAt>() else {
            return Self(None);
        };
        deadline.hand_over = Self(Some(Arc::default()));
        deadline.hand_over.handle()
    }

    /// Returns the client's handle to that of a request. If no layer has inserted one, marks have no effect.
    #[inline]
    #[must_use]
    pub fn of(extensions: &Extensions) -> Self {
        let deadline = extensions.get::<DeadlineAt>();
        deadline.map_or(Self(None), |deadline| deadline.hand_over.handle())
    }

    /// Marks, for a client, where the request is.
    ///
    /// Returns whether it is still to be sent: if not, its caller has given it up, and counts a [held](Handed::Held) one
    /// as unsent.
    #[inline]
    pub fn mark(&mut self, place: Handed) -> bool {
        let before = self.update(|state| match (place, state & !GIVEN_UP) {
            (Handed::Held, _) if state <= TAKEN => HELD,
            (Handed::Taken, _) if state <= TAKEN => TAKEN,
            (Handed::Ended, TAKEN) => state & GIVEN_UP | ENDED,
            _ => state,
        });
        before & GIVEN_UP == 0
    }

    /// Gives the call up, for the layer. Returns where the request was: if it was [held](Handed::Held), it will not be
    /// sent.
    #[inline]
    #[must_use]
    pub fn give_up(&self) -> Handed {
        handed(self.update(|state| state | GIVEN_UP))
    }

    /// Returns where the request is.
    #[inline]
    #[must_use]
    pub fn handed(&self) -> Handed {
        let state = self.0.as_ref();
        handed(state.map_or(UNKNOWN, |state| state.load(Ordering::Acquire)))
    }

    /// Returns another handle, where a clone would be that of a copied request.
    fn handle(&self) -> Self {
        Self(self.0.clone())
    }

    /// Changes the state, and returns the one before.
    #[inline]
    fn update(&self, change: impl Fn(u8) -> u8) -> u8 {
        let Some(state) = &self.0 else {
            return UNKNOWN;
        };
        // AcqRel: what the client did before it marked is visible to the layer, and the other way round.
        let updated = state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            Some(change(state))
        });
        updated.unwrap_or_else(|state| state)
    }
}

/// A copy can be sent at any time.
impl Clone for HandOver {
    fn clone(&self) -> Self {
        self.update(|state| state & GIVEN_UP | COPIED);
        self.handle()
    }
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
