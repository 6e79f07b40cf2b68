//! From when on each of the numbers that can still be asked for fits every chord.

use std::num::NonZeroU64;

use crate::clock::Tick;

/// A row of times, put off by each chord in turn.
///
/// Kept as small whole units since a time that moves along, so that a processor's vector unit
/// puts off several at once: that is most of what a call costs at the limit.
#[derive(Debug)]
pub(super) struct Fits {
    period: u64,
    /// Nanoseconds in a unit, of which there are at most [`PERIOD`] in a period.
    unit: NonZeroU64,
    since: Tick,
    /// The number that the first of `row` is for.
    first: u64,
    pub(super) row: Vec<i32>,
}

/// The window before one that begins at `phi`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chord {
    pub(super) phi: Tick,
    /// Proofs before the chord.
    pub(super) before: u64,
    /// Proofs before its end.
    pub(super) until: u64,
}

// === impl Fits ===

impl Fits {
    pub(super) const fn new(period: u64) -> Self {
        Self {
            period,
            unit: match NonZeroU64::new(period.div_ceil(PERIOD)) {
                Some(unit) => unit,
                None => NonZeroU64::MIN,
            },
            since: Tick::ZERO,
            first: 0,
            row: Vec::new(),
        }
    }

    /// From when on `number` fits, by the chords so far; rounded up by less than a unit for each
    /// number that a chord reaches over.
    #[inline]
    pub(super) fn at(&self, number: u64) -> Tick {
        let units = self.row.get(self.place(number)).copied();
        let units = units.and_then(|units| u64::try_from(units).ok());
        // What has fitted since the row's beginning fits at any time that is asked about.
        match units {
            None | Some(0) => Tick::ZERO,
            Some(units) => self.since.plus(units.saturating_mul(self.unit.get())),
        }
    }

    /// Forgets what is below `least`, in large steps: each costs a move of the rest.
    #[inline]
    pub(super) fn forget(&mut self, least: u64) {
        let below = self.place(least);
        if below >= self.row.len() {
            self.row.clear();
            self.first = least.max(self.first);
        } else if below > self.row.len() / 2 {
            self.row.drain(..below);
            self.first = least;
        }
    }

    /// Puts off every number that the chord puts off: beyond `before`, and up to `until`.
    #[inline]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "two periods since `since` and a unit for each number are a billion and a half"
    )]
    pub(super) fn put_off(&mut self, chord: Chord) {
        let Chord { phi, before, until } = chord;
        if phi.since(self.since) >= self.unit.get().saturating_mul(TWO_PERIODS) {
            self.move_to(phi);
        }
        let over = until.saturating_sub(before).max(1);
        let step = self.period.div_ceil(self.unit.get().saturating_mul(over));
        let least = before.saturating_add(1).max(self.first);
        let (from, to) = (self.place(least), self.place(until.saturating_add(1)));
        if self.row.len() < to {
            self.row.resize(to, 0);
        }
        let begin = phi.since(self.since).div_ceil(self.unit.get());
        let begin = begin.saturating_add(step.saturating_mul(least.saturating_sub(before)));
        let (mut fits, step) = (units(begin), units(step));
        for kept in self.row.get_mut(from..to).unwrap_or_default() {
            *kept = fits.max(*kept);
            fits += step;
        }
    }

    /// Counts from `since` on, where nobody asks about earlier times any more.
    #[cold]
    fn move_to(&mut self, since: Tick) {
        let by = since.since(self.since) / self.unit;
        // By whole units, or the times would be rounded once more.
        self.since = self.since.plus(by.saturating_mul(self.unit.get()));
        let by = units(by);
        for kept in &mut self.row {
            *kept = kept.saturating_sub(by).max(0);
        }
    }

    #[inline]
    fn place(&self, number: u64) -> usize {
        usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX)
    }
}

/// What is more than this is not reached, as nobody grants half a billion in a period.
#[inline]
fn units(units: u64) -> i32 {
    i32::try_from(units).unwrap_or(i32::MAX)
}

/// At most so many units in a period: with two periods and a half of them no time overflows.
const PERIOD: u64 = 1 << 29;

const TWO_PERIODS: u64 = 2 * PERIOD;

#[cfg(test)]
mod tests;
