//! A body that takes its time and may break.

use std::{
    fmt,
    future::Future as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Sleep;

use crate::{
    body::{Pieces, progress::Progress},
    error::Error,
    fault::{BodyFault, BodyFaults},
    socket::Socket,
};

/// Pieces with pauses between them, and at most one fault.
pub(crate) struct Flow {
    pieces: Pieces,
    progress: Progress,
    faults: BodyFaults,
    socket: Option<Arc<Socket>>,
    state: State,
}

enum State {
    /// Before a piece, its pause not yet decided on.
    Before,
    /// In the pause before a piece.
    Pausing(Pin<Box<Sleep>>),
    /// Nothing is in the way of the next piece.
    Due,
    /// The bytes before a reset or a cut are on their way.
    Breaking(Pin<Box<Sleep>>, BodyFault),
    /// Everything has come.
    Ended,
    /// It has been broken off.
    Broken,
}

// === impl Flow ===

impl Flow {
    pub(crate) fn new(
        pieces: Pieces,
        length: Option<u64>,
        rate: Option<u64>,
        faults: BodyFaults,
        socket: Option<Arc<Socket>>,
    ) -> Self {
        let state = if length == Some(0) {
            State::Ended
        } else {
            State::Before
        };
        Self {
            pieces,
            progress: Progress::new(length, rate, faults.clock.now()),
            faults,
            socket,
            state,
        }
    }

    /// Nothing more will come, and nothing has gone wrong.
    pub(crate) fn is_at_end(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    pub(crate) fn poll_piece(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Error>>> {
        let this = &mut *self;
        loop {
            match &mut this.state {
                // ## Before => (Breaking | Pausing | Due)
                State::Before => match this.due_fault() {
                    Some(fault @ (BodyFault::Reset | BodyFault::Truncate)) => {
                        this.state = State::Breaking(pause(FLUSH), fault);
                    }
                    fault => {
                        let wait = this.pause_before(fault);
                        this.state = if wait.is_zero() {
                            State::Due
                        } else {
                            State::Pausing(pause(wait))
                        };
                    }
                },
                // ## Pausing => Due
                State::Pausing(sleep) => {
                    ready!(sleep.as_mut().poll(cx));
                    this.state = State::Due;
                }
                // ## Due => (Before | Ended | Broken)
                State::Due => {
                    let most = this.most();
                    return Poll::Ready(match ready!(this.pieces.poll_next(most, cx)) {
                        Some(Ok(piece)) => {
                            this.progress.add(&piece);
                            this.state = if this.progress.is_complete() {
                                State::Ended
                            } else {
                                State::Before
                            };
                            Some(Ok(piece))
                        }
                        Some(Err(error)) => {
                            this.state = State::Broken;
                            Some(Err(Error::body(error)))
                        }
                        None => {
                            this.state = State::Ended;
                            None
                        }
                    });
                }
                // ## Breaking => Broken
                State::Breaking(sleep, fault) => {
                    ready!(sleep.as_mut().poll(cx));
                    let fault = *fault;
                    this.state = State::Broken;
                    return Poll::Ready(this.break_off(fault).map(Err));
                }
                State::Ended | State::Broken => return Poll::Ready(None),
            }
        }
    }

    /// Ends the body before its end; with an error, unless the head has said the length, by which
    /// hyper sees for itself that the body is short.
    fn break_off(&self, fault: BodyFault) -> Option<Error> {
        if fault == BodyFault::Reset {
            if let Some(socket) = &self.socket {
                socket.reset();
            }
            return Some(Error::reset());
        }
        self.progress.length().is_none().then(Error::closed)
    }

    /// The fault to strike before the next piece. Those that strike halfway strike once.
    fn due_fault(&mut self) -> Option<BodyFault> {
        let fault = self.faults.fault?;
        match fault {
            BodyFault::Reset | BodyFault::Truncate | BodyFault::Stall(_) => {
                if !self.progress.is_halfway() {
                    return None;
                }
                self.faults.fault = None;
            }
            BodyFault::Endless | BodyFault::Drip(_) => {}
        }
        Some(fault)
    }

    fn pause_before(&mut self, fault: Option<BodyFault>) -> Duration {
        let slow = match fault {
            Some(BodyFault::Drip(pause) | BodyFault::Stall(pause)) => pause,
            Some(BodyFault::Endless) => FLOOD,
            Some(BodyFault::Reset | BodyFault::Truncate) | None => Duration::ZERO,
        };
        let now = self.faults.clock.now();
        let sampled = self.faults.delay.sample(now, &mut self.faults.rng);
        slow.saturating_add(sampled)
            .max(self.progress.due(self.most()).saturating_sub(now))
    }

    /// The most bytes the next piece may have.
    fn most(&self) -> usize {
        let bound = match self.faults.fault {
            Some(BodyFault::Drip(_)) => 1,
            Some(BodyFault::Reset | BodyFault::Truncate | BodyFault::Stall(_)) => {
                self.progress.to_halfway()
            }
            Some(BodyFault::Endless) | None => u64::MAX,
        };
        self.progress.piece(bound)
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow")
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}

fn pause(wait: Duration) -> Pin<Box<Sleep>> {
    Box::pin(tokio::time::sleep(wait))
}

/// How long a reset or a cut waits for the bytes before it: either throws away what is unsent.
const FLUSH: Duration = Duration::from_millis(20);

/// The pause between the pieces of an endless body, 1.6 MB/s: it floods the client, not the host.
const FLOOD: Duration = Duration::from_millis(10);
