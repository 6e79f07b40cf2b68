//! The use of a socket: idle or not, by what its owner writes and what its answers tell.

use http::StatusCode;

/// How one socket is used.
#[derive(Debug)]
pub(super) struct Usage {
    written: Mark,
    phase: Phase,
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
    /// Whether the socket's writes are not this request's alone: HTTP/2, or another protocol follows.
    pub(super) opaque: bool,
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
    Answered { at: Mark },
    /// Another protocol's, or HTTP/2, which writes on its own: never idle.
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
            Phase::Answered { at } if self.written == at => Some(if at.blocked {
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

    /// How far the writing is.
    pub(super) fn written(&mut self) -> Mark {
        self.written
    }

    /// A head is here, of an answer that was taken out of the pool at `at`.
    pub(super) fn head(&mut self, head: Head, at: Option<Mark>) {
        self.answers += 1;
        let at = at.unwrap_or(self.written);
        self.phase = match self.phase {
            _ if head.opaque => Phase::Opaque,
            Phase::Opaque => Phase::Opaque,
            // Heads may be told in another order than they came.
            Phase::Answered { at: last } => Phase::Answered { at: at.max(last) },
            Phase::New { .. } => Phase::Answered { at },
        };
    }

    /// A body has ended.
    pub(super) fn ended(&mut self) {
        self.answers = self.answers.saturating_sub(1);
    }
}
