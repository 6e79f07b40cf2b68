//! A paced body, which a fault can end early.

#![warn(clippy::arithmetic_side_effects, clippy::as_conversions)]

use std::{
    future::Future as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Sleep;

use crate::{
    body::source::{PIECE, Pieces},
    error::{Error, Kind},
    fault::{BodyFaults, DataFault},
    socket::Socket,
};

/// Pieces with pauses between them, and at most one fault.
pub(super) struct Flow {
    pieces: Pieces,
    progress: Progress,
    faults: BodyFaults,
    socket: Option<Arc<Socket>>,
    state: State,
}

enum State {
    /// Before a piece whose pause is not yet known.
    Before,
    /// In the pause before a piece.
    Pausing(Pin<Box<Sleep>>),
    /// Waits until the bytes before a reset or a cut are sent.
    Breaking(Pin<Box<Sleep>>, DataFault),
    /// All bytes have been returned.
    Ended,
    /// A fault has ended the body.
    Broken,
}

/// The bytes sent so far, and the time of the next piece: arithmetic on `now`.
struct Progress {
    /// The length in the head, if there is one.
    length: Option<u64>,
    /// Bytes a second.
    rate: Option<u64>,
    started: Duration,
    sent: u64,
}

// === impl Flow ===

impl Flow {
    pub(super) fn new(
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
            progress: Progress {
                length,
                rate,
                started: faults.clock.now(),
                sent: 0,
            },
            faults,
            socket,
            state,
        }
    }

    /// Whether all bytes have been returned, without a fault.
    pub(super) fn is_at_end(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    pub(super) fn poll_piece(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Error>>> {
        let this = &mut *self;
        loop {
            match &mut this.state {
                // ## Before => (Breaking | Pausing | Before | Ended | Broken)
                State::Before => match this.due_fault() {
                    Some(fault @ (DataFault::ResetBody | DataFault::Truncate)) => {
                        this.state = State::Breaking(pause(FLUSH), fault);
                    }
                    fault => {
                        let wait = this.pause_before(fault);
                        if wait.is_zero() {
                            return Poll::Ready(this.piece());
                        }
                        this.state = State::Pausing(pause(wait));
                    }
                },
                // ## Pausing => (Before | Ended | Broken)
                State::Pausing(sleep) => {
                    ready!(sleep.as_mut().poll(cx));
                    return Poll::Ready(this.piece());
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

    /// Reads the next piece, whose time has come.
    fn piece(&mut self) -> Option<Result<Bytes, Error>> {
        match self.pieces.next(self.most()) {
            Ok(Some(piece)) => {
                self.progress.add(&piece);
                self.state = if self.progress.is_complete() {
                    State::Ended
                } else {
                    State::Before
                };
                Some(Ok(piece))
            }
            Ok(None) => {
                self.state = State::Ended;
                None
            }
            Err(error) => {
                self.state = State::Broken;
                Some(Err(Error::failed("cannot encode a body", error)))
            }
        }
    }

    /// Ends the body early. Returns an error, unless the head has the length: then hyper detects
    /// that the body is short.
    fn break_off(&self, fault: DataFault) -> Option<Error> {
        if fault == DataFault::ResetBody {
            if let Some(socket) = &self.socket {
                socket.reset();
            }
            return Some(Error::from(Kind::Reset));
        }
        self.progress
            .length
            .is_none()
            .then(|| Error::from(Kind::Closed))
    }

    /// Returns the fault that is due before the next piece. A fault of the middle is due once.
    fn due_fault(&mut self) -> Option<DataFault> {
        let fault = self.faults.fault?;
        match fault {
            DataFault::ResetBody | DataFault::Truncate | DataFault::Stall(_) => {
                if self.progress.to_halfway() > 0 {
                    return None;
                }
                self.faults.fault = None;
            }
            _ => {}
        }
        Some(fault)
    }

    fn pause_before(&self, fault: Option<DataFault>) -> Duration {
        let slow = match fault {
            Some(DataFault::Drip(pause) | DataFault::Stall(pause)) => pause,
            Some(DataFault::Endless) => FLOOD,
            _ => Duration::ZERO,
        };
        let now = self.faults.clock.now();
        slow.max(self.progress.due(self.most()).saturating_sub(now))
    }

    /// Returns the largest size of the next piece.
    fn most(&self) -> usize {
        let bound = match self.faults.fault {
            Some(DataFault::Drip(_)) => 1,
            Some(DataFault::ResetBody | DataFault::Truncate | DataFault::Stall(_)) => {
                self.progress.to_halfway()
            }
            _ => u64::MAX,
        };
        self.progress.piece(bound)
    }
}

fn pause(wait: Duration) -> Pin<Box<Sleep>> {
    Box::pin(tokio::time::sleep(wait))
}

// === impl Progress ===

impl Progress {
    fn add(&mut self, piece: &[u8]) {
        self.sent = self.sent.saturating_add(count(piece.len()));
    }

    /// Whether the length in the head has been sent.
    fn is_complete(&self) -> bool {
        self.length.is_some_and(|length| self.sent >= length)
    }

    /// Returns the bytes left to half of the length, or to the first byte if no length is known.
    fn to_halfway(&self) -> u64 {
        let halfway = self.length.map_or(1, |length| length.div_ceil(2)).max(1);
        halfway.saturating_sub(self.sent)
    }

    /// Returns the largest size of a piece at this rate, at most `bound`.
    fn piece(&self, bound: u64) -> usize {
        let at_rate = self
            .rate
            .map_or(u64::MAX, |rate| rate.div_ceil(PIECES_A_SECOND));
        usize::try_from(at_rate.min(bound))
            .unwrap_or(PIECE)
            .clamp(1, PIECE)
    }

    /// Returns the time at which the next piece, of `most` bytes, is due at this rate. The last
    /// byte is due after length / rate.
    fn due(&self, most: usize) -> Duration {
        let Some(rate) = self.rate else {
            return Duration::ZERO;
        };
        let end = self
            .sent
            .saturating_add(count(most))
            .min(self.length.unwrap_or(u64::MAX));
        let nanos = u128::from(end)
            .saturating_mul(1_000_000_000)
            .checked_div(rate.into());
        let nanos = u64::try_from(nanos.unwrap_or(0)).unwrap_or(u64::MAX);
        self.started.saturating_add(Duration::from_nanos(nanos))
    }
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// How long a reset or a cut waits for the bytes before it, because it discards unsent bytes.
const FLUSH: Duration = Duration::from_millis(20);

/// The pause between the pieces of an endless body, 1.6 MB/s: it floods the client, not the host.
const FLOOD: Duration = Duration::from_millis(10);

/// The pieces of a paced body in a second, if [`PIECE`] does not make them smaller.
const PIECES_A_SECOND: u64 = 20;
