//! Progress of a body: how much has been sent, and when the next piece is due: arithmetic on `now`.

use std::time::Duration;

use crate::body::pieces::PIECE;

/// So many bytes since then, of so many, at such a rate.
#[derive(Debug)]
pub(super) struct Progress {
    /// The length the head says, if it does.
    length: Option<u64>,
    /// Bytes a second.
    rate: Option<u64>,
    started: Duration,
    sent: u64,
}

// === impl Progress ===

impl Progress {
    pub(super) fn new(length: Option<u64>, rate: Option<u64>, now: Duration) -> Self {
        Self {
            length,
            rate,
            started: now,
            sent: 0,
        }
    }

    pub(super) fn add(&mut self, piece: &[u8]) {
        self.sent = self.sent.saturating_add(count(piece.len()));
    }

    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Whether all has been sent that the head says.
    pub(super) fn is_complete(&self) -> bool {
        self.length.is_some_and(|length| self.sent >= length)
    }

    /// Whether half of the length has been sent, or the first byte where no length is known.
    pub(super) fn is_halfway(&self) -> bool {
        self.to_halfway() == 0
    }

    /// The bytes that are left to there.
    pub(super) fn to_halfway(&self) -> u64 {
        let halfway = self.length.map_or(1, |length| length.div_ceil(2)).max(1);
        halfway.saturating_sub(self.sent)
    }

    /// The most bytes that the rate lets a piece have, and no more than `bound`.
    pub(super) fn piece(&self, bound: u64) -> usize {
        let at_rate = self
            .rate
            .map_or(u64::MAX, |rate| rate.div_ceil(PIECES_A_SECOND));
        usize::try_from(at_rate.min(bound))
            .unwrap_or(PIECE)
            .clamp(1, PIECE)
    }

    /// When the next piece, of `most` bytes, is due at this rate: when the time for it and all before
    /// it has passed, so that the last byte is due after length / rate.
    pub(super) fn due(&self, most: usize) -> Duration {
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

/// Into how many pieces a second a paced body is cut, if they are not limited by [`PIECE`].
const PIECES_A_SECOND: u64 = 20;
