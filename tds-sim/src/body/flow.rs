//! Paced body, which a fault can end early.

#![warn(clippy::arithmetic_side_effects, clippy::as_conversions)]

use std::{io::Read, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    body::source::{self, PIECE},
    clock::Clock,
    error::{Error, Kind},
    fault::DataFault,
    socket::Socket,
};

/// Pieces with pauses between them, and at most one fault. The time of each is arithmetic on the time
/// of the first.
pub(super) struct Flow {
    pieces: Box<dyn Read + Send>,
    /// Length in the head, if there is one.
    length: Option<u64>,
    /// Bytes a second.
    rate: Option<u64>,
    started: Duration,
    sent: u64,
    fault: Option<DataFault>,
    clock: Arc<Clock>,
    socket: Option<Arc<Socket>>,
    /// Whether all bytes have been returned, without a fault.
    pub(super) is_at_end: bool,
}

/// Flow after its next piece.
pub(super) type Next = Pin<Box<dyn Future<Output = (Flow, Option<Result<Bytes, Error>>)> + Send>>;

// === impl Flow ===

impl Flow {
    pub(super) fn new(
        pieces: Box<dyn Read + Send>,
        length: Option<u64>,
        rate: Option<u64>,
        fault: Option<DataFault>,
        clock: Arc<Clock>,
        socket: Option<Arc<Socket>>,
    ) -> Self {
        Self {
            pieces,
            length,
            rate,
            started: clock.now(),
            sent: 0,
            fault,
            clock,
            socket,
            is_at_end: length == Some(0),
        }
    }

    /// Returns the next piece at its time, or how a fault ends the body.
    pub(super) fn next(mut self) -> Next {
        Box::pin(async move {
            let fault = self.due_fault();
            if let Some(fault @ (DataFault::ResetBody | DataFault::Truncate)) = fault {
                tokio::time::sleep(FLUSH).await;
                let broken = self.break_off(fault);
                return (self, broken.map(Err));
            }
            let wait = self.pause_before(fault);
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            let piece = self.piece();
            (self, piece)
        })
    }

    /// Reads the next piece, whose time has come.
    fn piece(&mut self) -> Option<Result<Bytes, Error>> {
        let most = self.most();
        match source::piece(&mut self.pieces, most) {
            Ok(piece) if piece.is_empty() => {
                self.is_at_end = true;
                None
            }
            Ok(piece) => {
                self.sent = self.sent.saturating_add(count(piece.len()));
                self.is_at_end = self.length.is_some_and(|length| self.sent >= length);
                Some(Ok(piece))
            }
            Err(error) => Some(Err(Error::failed("cannot encode a body", error))),
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
        self.length.is_none().then(|| Error::from(Kind::Closed))
    }

    /// Returns the fault that is due before the next piece. A fault in the middle of a body is due
    /// only once.
    fn due_fault(&mut self) -> Option<DataFault> {
        let fault = self.fault?;
        match fault {
            DataFault::ResetBody | DataFault::Truncate | DataFault::Stall(_) => {
                if self.to_halfway() > 0 {
                    return None;
                }
                self.fault = None;
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
        let now = self.clock.now();
        slow.max(self.due(self.most()).saturating_sub(now))
    }

    /// Returns the bytes left to half of the length, or to the first byte if no length is known.
    fn to_halfway(&self) -> u64 {
        let halfway = self.length.map_or(1, |length| length.div_ceil(2)).max(1);
        halfway.saturating_sub(self.sent)
    }

    /// Returns the largest size of the next piece.
    fn most(&self) -> usize {
        let bound = match self.fault {
            Some(DataFault::Drip(_)) => 1,
            Some(DataFault::ResetBody | DataFault::Truncate | DataFault::Stall(_)) => {
                self.to_halfway()
            }
            _ => u64::MAX,
        };
        let at_rate = self.rate.map(|rate| rate.div_ceil(PIECES_A_SECOND));
        let most = usize::try_from(at_rate.unwrap_or(u64::MAX).min(bound));
        most.unwrap_or(PIECE).clamp(1, PIECE)
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

/// How long a reset or a cut waits for the bytes before it, because it would discard unsent ones.
const FLUSH: Duration = Duration::from_millis(20);

/// Pause between the pieces of an endless body. The 1.6 MB/s flood the client, but not the host.
const FLOOD: Duration = Duration::from_millis(10);

/// Pieces of a paced body in a second, if [`PIECE`] does not make them smaller.
const PIECES_A_SECOND: u64 = 20;
