//! The numbers of a budget, as whole parts so that no ratio is rounded.

use std::num::NonZeroU32;
use std::time::Duration;

/// Amounts are in parts of a retry: one has `price` times [`FINE`] of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    pub(super) deposit: u32,
    pub(super) price: NonZeroU32,
    pub(super) per_second: u32,
    pub(super) burst: NonZeroU32,
}

// === impl Rates ===

impl Rates {
    /// What a request earns.
    pub(super) fn deposit(&self) -> u128 {
        u128::from(self.deposit).saturating_mul(FINE)
    }

    /// What a retry costs.
    pub(super) fn price(&self) -> u128 {
        u128::from(self.price.get()).saturating_mul(FINE)
    }

    /// How much a host may owe: its burst, and less than a retry on top, without which a burst of
    /// one would lose what a request earns beyond the price.
    pub(super) fn most(&self) -> u128 {
        let share = self.deposit().checked_rem(self.price());
        let burst = self.price().saturating_mul(self.burst.get().into());
        burst.saturating_add(share.unwrap_or_default())
    }

    /// What time earns.
    pub(super) fn earned(&self, elapsed: Duration) -> u128 {
        let a_nanosecond = u128::from(self.per_second).saturating_mul(self.price.get().into());
        elapsed.as_nanos().saturating_mul(a_nanosecond)
    }
}

/// Nanoseconds in a second: the earnings of a nanosecond are whole parts too.
const FINE: u128 = 1_000_000_000;
