//! Whether a socket is idle, by what its owner writes and what its answers tell.

use std::{mem, sync::PoisonError, task::Waker};

use http::StatusCode;

use crate::sync::{Mutex, MutexGuard};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    writes: u64,
    /// Whether the last one found no room.
    blocked: bool,
}

/// What came of an event.
#[derive(Debug)]
#[must_use]
pub(super) struct Change<R> {
    pub(super) told: R,
    /// Whether the limit has to look.
    pub(super) news: bool,
}

/// What a response's head says about its socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) http2: bool,
    /// Whether another protocol follows.
    pub(super) upgrade: bool,
}

/// What the service thinks of a socket, as an answer on it tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is accepted for the first time.
    Accepted,
    Works,
    /// A 416, which may be about connections.
    MaybeRefused {
        had_worked: bool,
    },
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

    /// Who is to look whether the socket is to leave, if anybody waits to read.
    pub(super) fn take_reader(&self) -> Option<Waker> {
        self.lock().reader.take()
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

    /// A write has gone out, or has found no room.
    pub(super) fn wrote(&self, blocked: bool) -> Change<()> {
        self.change(|state| {
            state.written.blocked = blocked;
            if !blocked {
                state.written.writes = state.written.writes.wrapping_add(1);
            }
        })
    }

    /// As if the write that found no room had been given up.
    #[cfg(test)]
    pub(super) fn unblock(&self) {
        let Change { .. } = self.change(|state| state.written.blocked = false);
    }

    /// Whatever makes the connection is done, as TLS's handshake is.
    pub(super) fn made(&self, background: bool) -> Change<()> {
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
    }

    /// A handle is the pool's from now on.
    pub(super) fn pooled(&self) -> Change<()> {
        self.change(|state| state.handles = state.handles.saturating_add(1))
    }

    /// A handle was taken out of the pool. Gives how far the writing is.
    pub(super) fn taken_out(&self) -> Change<Mark> {
        self.change(|state| {
            state.handles = state.handles.saturating_add(1);
            state.written
        })
    }

    /// A handle is gone.
    pub(super) fn put_away(&self) -> Change<()> {
        self.change(|state| state.handles = state.handles.saturating_sub(1))
    }

    /// A head is here, of an answer that was taken out of the pool at `at`.
    pub(super) fn head(&self, head: Head, at: Option<Mark>) -> Change<Verdict> {
        self.change(|state| {
            state.answers = state.answers.saturating_add(1);
            let at = at.unwrap_or(state.written);
            let http2 = head.http2;
            state.phase = match state.phase {
                _ if head.upgrade => Phase::Opaque,
                Phase::Opaque => Phase::Opaque,
                // Heads may be told in another order than they came.
                Phase::Answered { at: last, .. } => Phase::Answered {
                    at: at.max(last),
                    http2,
                },
                Phase::New { .. } => Phase::Answered { at, http2 },
            };
            let had_worked = state.has_worked;
            let accepted = head.status != StatusCode::RANGE_NOT_SATISFIABLE;
            state.has_worked |= accepted;
            match (accepted, had_worked) {
                (true, false) => Verdict::Accepted,
                (true, true) => Verdict::Works,
                (false, had_worked) => Verdict::MaybeRefused { had_worked },
            }
        })
    }

    /// A body has ended. Says whether the socket carries the next request already.
    pub(super) fn ended(&self) -> Change<bool> {
        self.change(|state| {
            state.answers = state.answers.saturating_sub(1);
            state.answers == 0 && state.rest().is_none()
        })
    }

    fn change<R>(&self, event: impl FnOnce(&mut State) -> R) -> Change<R> {
        let mut state = self.lock();
        let told = event(&mut state);
        let rest = state.rest();
        if rest.is_none() {
            // A request came first.
            state.asked = false;
        }
        let news = mem::replace(&mut state.told, rest) != rest;
        Change { told, news }
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
