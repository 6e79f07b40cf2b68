//! Whether a socket is idle: what its owner, its answers and its limit tell each other.
//!
//! hyper keeps that to itself, and under TLS bytes do not tell. So a handle rides in each
//! response's extensions, by which the request layer says when an answer has ended.

use std::{mem, sync::PoisonError, task::Waker};

use http::{Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;

use crate::{
    connection::permit::Place,
    sync::{Mutex, MutexGuard},
};

/// How one socket is used.
#[derive(Debug)]
pub(super) struct Usage {
    /// Guards plain numbers and a waker, for a few instructions. The limit takes it under its own
    /// lock; everybody else takes it alone and tells the limit afterwards, which looks again.
    state: Mutex<State>,
}

/// How sure it is that nobody misses a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Each of its requests has been answered, whole.
    Free,
    /// A request may be about to go out, or an upload is stuck although it has been answered.
    Doubtful,
}

/// Who opened a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A request that is about to use it.
    Request,
    /// A pool, for whoever comes.
    Background,
}

/// How far the writing was at a certain time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Mark {
    writes: u64,
    /// Whether the last one found no room.
    blocked: bool,
}

#[derive(Debug)]
struct State {
    written: Mark,
    phase: Phase,
    /// Those alive: the pool's own, one for each request of HTTP/2 that has no head yet, and
    /// those of answers.
    handles: usize,
    /// Answers whose bodies have not ended.
    answers: usize,
    /// Whether the service has accepted a request on it.
    has_worked: bool,
    /// What the limit has been told.
    told: Option<Rest>,
    /// Whether it shall leave.
    asked: bool,
    /// Who reads from it.
    reader: Option<Waker>,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Nothing has been answered. What was written by then made the connection.
    // ## New => (Answered | Opaque)
    New {
        made: Mark,
        by: Origin,
        connected: bool,
    },
    /// The last answer came when so much was written.
    // ## Answered => Opaque
    Answered { at: Mark, http2: bool },
    /// Another protocol's.
    Opaque,
}

/// A socket as its owner and its answers know it: what [`Connected`] carries as an extra.
///
/// [`Connected`]: hyper_util::client::legacy::connect::Connected
#[derive(Debug)]
pub(crate) struct Handle {
    place: Place,
    /// How far the writing was when the pool took it out for a response, before it could give the
    /// socket to another request; `None` in the pool's own.
    mark: Option<Mark>,
}

/// An answer on a socket, from its head on. Kept for its drop, which says that the body has ended.
#[derive(Debug)]
pub(crate) struct Exchange {
    handle: Handle,
}

// === impl Usage ===

impl Usage {
    pub(super) fn new(by: Origin) -> Self {
        let made = Mark {
            writes: 0,
            blocked: false,
        };
        let told = Some(by.rest());
        let phase = Phase::New {
            made,
            by,
            connected: false,
        };
        Self {
            state: Mutex::new(State {
                written: made,
                phase,
                handles: 0,
                answers: 0,
                has_worked: false,
                told,
                asked: false,
                reader: None,
            }),
        }
    }

    /// Whether it is idle, and whether it has been asked to leave.
    pub(super) fn rest(&self) -> (Option<Rest>, bool) {
        let state = self.lock();
        (state.rest(), state.asked)
    }

    /// Asks it to leave, if it is still idle; its reader has yet to be woken.
    pub(super) fn ask(&self) -> bool {
        let mut state = self.lock();
        state.asked = state.rest().is_some();
        state.asked
    }

    pub(super) fn wake_reader(&self) {
        let reader = self.lock().reader.take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Whether the reader is to be given the end of the stream; if not, it is woken for it.
    pub(super) fn is_to_leave(&self, reader: &Waker) -> bool {
        let mut state = self.lock();
        let known = matches!(&state.reader, Some(known) if known.will_wake(reader));
        let replaced = if known || state.asked {
            None
        } else {
            state.reader.replace(reader.clone())
        };
        let asked = state.asked;
        drop(state);
        // What a waker drops may look here.
        drop(replaced);
        asked
    }

    /// A write has gone out, or has found no room. Says whether the limit has to look.
    pub(super) fn wrote(&self, blocked: bool) -> bool {
        self.change(|state| {
            state.written.blocked = blocked;
            if !blocked {
                state.written.writes = state.written.writes.wrapping_add(1);
            }
        })
        .1
    }

    /// As if the write that found no room had been given up.
    #[cfg(test)]
    pub(super) fn unblock(&self) {
        self.change(|state| state.written.blocked = false);
    }

    /// Whatever makes the connection is done, as TLS's handshake is. Says whether the limit has
    /// to look.
    pub(super) fn made(&self, background: bool) -> bool {
        self.change(|state| {
            let written = state.written;
            if let Phase::New {
                made,
                by,
                connected: connected @ false,
            } = &mut state.phase
            {
                *made = written;
                *connected = true;
                if background {
                    *by = Origin::Background;
                }
            }
        })
        .1
    }

    fn change<R>(&self, event: impl FnOnce(&mut State) -> R) -> (R, bool) {
        let mut state = self.lock();
        let told = event(&mut state);
        let rest = state.rest();
        if rest.is_none() {
            // A request came first.
            state.asked = false;
        }
        (told, mem::replace(&mut state.told, rest) != rest)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Origin ===

impl Origin {
    /// What a socket is that carries nothing yet.
    const fn rest(self) -> Rest {
        match self {
            Self::Background => Rest::Free,
            Self::Request => Rest::Doubtful,
        }
    }
}

// === impl State ===

impl State {
    fn rest(&self) -> Option<Rest> {
        match self.phase {
            _ if self.answers > 0 => None,
            Phase::New { made, by, .. } if self.written == made && !made.blocked => Some(by.rest()),
            // It writes on its own, and whoever may still use it has a handle.
            Phase::Answered { http2: true, .. } if self.handles <= 1 => Some(Rest::Free),
            Phase::Answered { at, http2: false } if self.written == at => Some(if at.blocked {
                Rest::Doubtful
            } else {
                Rest::Free
            }),
            Phase::New { .. } | Phase::Answered { .. } | Phase::Opaque => None,
        }
    }
}

// === impl Handle ===

impl Handle {
    /// The pool's own.
    pub(super) fn of(place: Place) -> Self {
        place.change(|state| state.handles = state.handles.saturating_add(1));
        Self { place, mark: None }
    }

    /// A head is here. Says whether the service accepts the socket for the first time, and whether
    /// it had accepted it before.
    fn head(&self, status: StatusCode, http2: bool, upgrade: bool) -> (bool, bool) {
        self.place.change(|state| {
            state.answers = state.answers.saturating_add(1);
            let at = self.mark.unwrap_or(state.written);
            state.phase = match state.phase {
                _ if upgrade => Phase::Opaque,
                Phase::Opaque => Phase::Opaque,
                // Heads may be told in another order than they came.
                Phase::Answered { at: last, .. } => Phase::Answered {
                    at: at.max(last),
                    http2,
                },
                Phase::New { .. } => Phase::Answered { at, http2 },
            };
            let worked = state.has_worked;
            state.has_worked |= status != StatusCode::RANGE_NOT_SATISFIABLE;
            (state.has_worked && !worked, worked)
        })
    }

    /// The body has ended. Says whether the socket carries the next request already.
    fn ended(&self) -> bool {
        self.place.change(|state| {
            state.answers = state.answers.saturating_sub(1);
            state.answers == 0 && state.rest().is_none()
        })
    }
}

/// A clone of the pool's own is one request's.
impl Clone for Handle {
    fn clone(&self) -> Self {
        let written = self.place.change(|state| {
            state.handles = state.handles.saturating_add(1);
            state.written
        });
        Self {
            place: self.place.clone(),
            mark: self.mark.or(Some(written)),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.place
            .change(|state| state.handles = state.handles.saturating_sub(1));
    }
}

// === impl Exchange ===

impl Exchange {
    /// The answer whose head this is, if its socket is limited and nobody has told it before.
    #[inline]
    pub(crate) fn begin<B>(response: &mut Response<B>) -> Option<Self> {
        // Nearly always an empty map where there is no such socket.
        response.extensions().get::<Handle>()?;
        Self::begun(response)
    }

    fn begun<B>(response: &mut Response<B>) -> Option<Self> {
        let handle = response.extensions_mut().remove::<Handle>()?;
        let status = response.status();
        let upgrade = status == StatusCode::SWITCHING_PROTOCOLS
            || response.extensions().get::<OnUpgrade>().is_some();
        let (accepted, had_worked) =
            handle.head(status, response.version() == Version::HTTP_2, upgrade);
        if accepted {
            handle.place.accepted();
        } else if status == StatusCode::RANGE_NOT_SATISFIABLE {
            handle.place.maybe_refused(had_worked);
        }
        Some(Self { handle })
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.handle.ended() {
            self.handle.place.handed_on();
        }
    }
}

impl Place {
    fn change<R>(&self, event: impl FnOnce(&mut State) -> R) -> R {
        let (told, news) = self.usage().change(event);
        if news {
            self.settle();
        }
        told
    }
}

#[cfg(test)]
mod tests;
