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
    body::{Pieces, pieces::PIECE},
    error::Error,
    fault::{BodyFault, BodyFaults},
    socket::Socket,
};

/// Pieces with pauses between them, and at most one fault.
pub(crate) struct Flow {
    pieces: Pieces,
    /// The length the head says, if it does.
    length: Option<u64>,
    /// Bytes a second.
    rate: Option<u64>,
    faults: BodyFaults,
    socket: Option<Arc<Socket>>,
    started: Duration,
    sent: u64,
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
        let started = faults.clock.now();
        Self {
            pieces,
            length,
            rate,
            faults,
            socket,
            started,
            sent: 0,
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
                            this.sent = this.sent.saturating_add(count(piece.len()));
                            let all = this.length.is_some_and(|length| this.sent >= length);
                            this.state = if all { State::Ended } else { State::Before };
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
        self.length.is_none().then(Error::closed)
    }

    /// The fault to strike before the next piece. Those that strike halfway strike once.
    fn due_fault(&mut self) -> Option<BodyFault> {
        let fault = self.faults.fault?;
        match fault {
            BodyFault::Reset | BodyFault::Truncate | BodyFault::Stall(_) => {
                if self.sent < self.halfway() {
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
            .max(self.due().saturating_sub(now))
    }

    /// When the next piece is due at this rate: when the time for it and all before it has passed,
    /// so that the last byte is due after length / rate.
    fn due(&self) -> Duration {
        let Some(rate) = self.rate else {
            return Duration::ZERO;
        };
        let end = self
            .sent
            .saturating_add(count(self.most()))
            .min(self.length.unwrap_or(u64::MAX));
        let nanos = u128::from(end)
            .saturating_mul(1_000_000_000)
            .checked_div(rate.into());
        let nanos = u64::try_from(nanos.unwrap_or(0)).unwrap_or(u64::MAX);
        self.started.saturating_add(Duration::from_nanos(nanos))
    }

    /// The most bytes the next piece may have.
    fn most(&self) -> usize {
        let to_halfway = self.halfway().saturating_sub(self.sent);
        let at_rate = self
            .rate
            .map_or(u64::MAX, |rate| rate.div_ceil(PIECES_A_SECOND));
        let most = match self.faults.fault {
            Some(BodyFault::Drip(_)) => 1,
            Some(BodyFault::Reset | BodyFault::Truncate | BodyFault::Stall(_)) => {
                to_halfway.min(at_rate)
            }
            Some(BodyFault::Endless) | None => at_rate,
        };
        usize::try_from(most).unwrap_or(PIECE).clamp(1, PIECE)
    }

    /// Where a fault strikes: half of the length, or the first byte where no length is known.
    fn halfway(&self) -> u64 {
        self.length.map_or(1, |length| length.div_ceil(2)).max(1)
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow")
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

fn pause(wait: Duration) -> Pin<Box<Sleep>> {
    Box::pin(tokio::time::sleep(wait))
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// How long a reset or a cut waits for the bytes before it: either throws away what is unsent.
const FLUSH: Duration = Duration::from_millis(20);

/// The pause between the pieces of an endless body, 1.6 MB/s: it floods the client, not the host.
const FLOOD: Duration = Duration::from_millis(10);

/// Into how many pieces a second a paced body is cut, if they are not limited by [`PIECE`].
const PIECES_A_SECOND: u64 = 20;
