//! The use of a socket: idle or not, by what its owner writes and what its answers tell.

use http::StatusCode;

/// How one socket is used.
#[derive(Debug)]
pub(super) struct Usage {
    written: Mark,
    phase: Phase,
    /// Those alive: the pool's own, one for each request of HTTP/2 that has no head yet, and
    /// those of answers.
    handles: usize,
    /// Answers whose bodies have not ended.
    answers: usize,
}

/// How sure it is that nobody misses a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Each of its requests has been answered, whole; or a pool has opened it for whoever comes.
    Free,
    /// A request may be about to go out, or an upload is stuck although it has been answered.
    Doubtful,
}

/// How far the writing was at a certain time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    writes: u64,
    /// Whether the last one found no room.
    blocked: bool,
}

/// What a response's head says about its socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) http2: bool,
    /// Whether another protocol follows.
    pub(super) upgrade: bool,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Nothing has been answered. What was written by then made the connection.
    // ## New => (Answered | Opaque)
    New {
        made: Mark,
        /// What it is while it carries nothing.
        unused: Rest,
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
    /// Of a socket that is this while it carries nothing.
    pub(super) fn new(unused: Rest) -> Self {
        let made = Mark {
            writes: 0,
            blocked: false,
        };
        Self {
            written: made,
            phase: Phase::New {
                made,
                unused,
                connected: false,
            },
            handles: 0,
            answers: 0,
        }
    }

    /// Whether it is idle.
    pub(super) fn rest(&self) -> Option<Rest> {
        match self.phase {
            _ if self.answers > 0 => None,
            Phase::New { made, unused, .. } if self.written == made && !made.blocked => {
                Some(unused)
            }
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

    /// A write has gone out, or has found no room.
    pub(super) fn wrote(&mut self, blocked: bool) {
        self.written.blocked = blocked;
        if !blocked {
            self.written.writes = self.written.writes.wrapping_add(1);
        }
    }

    /// Whatever makes the connection is done, as TLS's handshake is.
    pub(super) fn made(&mut self, background: bool) {
        if let Phase::New {
            made,
            unused,
            connected: connected @ false,
        } = &mut self.phase
        {
            *made = self.written;
            *connected = true;
            if background {
                *unused = Rest::Free;
            }
        }
    }

    /// There is one handle more. Gives how far the writing is.
    pub(super) fn handle(&mut self) -> Mark {
        self.handles = self.handles.saturating_add(1);
        self.written
    }

    /// A handle is gone.
    pub(super) fn put_away(&mut self) {
        self.handles = self.handles.saturating_sub(1);
    }

    /// A head is here, of an answer that was taken out of the pool at `at`.
    pub(super) fn head(&mut self, head: Head, at: Option<Mark>) {
        self.answers = self.answers.saturating_add(1);
        let at = at.unwrap_or(self.written);
        let http2 = head.http2;
        self.phase = match self.phase {
            _ if head.upgrade => Phase::Opaque,
            Phase::Opaque => Phase::Opaque,
            // Heads may be told in another order than they came.
            Phase::Answered { at: last, .. } => Phase::Answered {
                at: at.max(last),
                http2,
            },
            Phase::New { .. } => Phase::Answered { at, http2 },
        };
    }

    /// A body has ended. Says whether the socket carries the next request already.
    pub(super) fn ended(&mut self) -> bool {
        self.answers = self.answers.saturating_sub(1);
        self.answers == 0 && self.rest().is_none()
    }
}
