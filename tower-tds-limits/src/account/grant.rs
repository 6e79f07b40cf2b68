//! A grant as its holder remembers it: one word.

use std::fmt;

use crate::clock::Tick;

/// When the clock was last seen before a grant, and whether the grant was made then or later.
///
/// In one word, so that it moves in a register from the grant to the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant(u64);

// === impl Grant ===

impl Grant {
    /// Made when the clock was seen.
    #[inline]
    pub(super) const fn seen(seen: Tick) -> Self {
        Self(seen.nanos() & !LATER)
    }

    /// Made after the clock was seen, at a time that nobody looked at.
    #[inline]
    pub(super) const fn later(seen: Tick) -> Self {
        Self(seen.nanos() | LATER)
    }

    /// When it was made, where that is known.
    #[inline]
    pub(super) const fn at(self) -> Option<Tick> {
        if self.0 & LATER == 0 {
            Some(self.not_before())
        } else {
            None
        }
    }

    /// It was not made before.
    #[inline]
    pub(crate) const fn not_before(self) -> Tick {
        Tick::ZERO.plus(self.0 & !LATER)
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("at", &self.at())
            .field("not_before", &self.not_before())
            .finish()
    }
}

/// A bit that no clock reaches in 292 years.
const LATER: u64 = 1 << 63;
