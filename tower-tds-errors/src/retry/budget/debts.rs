//! The debts of hosts to the retry budget. One that owes nothing has its whole burst, and is not in here.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;

use super::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError};

/// Debts rather than savings, so that a request to a host without trouble touches nothing.
#[derive(Debug)]
pub(super) struct Ledger {
    /// How many hosts owe something, written under the lock.
    owing: AtomicUsize,
    /// Guards the debts; nothing waits while it is held.
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    debts: HashMap<Box<str>, Debt>,
    swept: Option<Instant>,
}

#[derive(Debug)]
struct Debt {
    owed: u128,
    /// The time up to which it has earned.
    at: Instant,
}

/// The numbers of a budget, as whole parts so that no ratio is rounded: amounts are in parts of a retry: one has `price` times [`FINE`] of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    pub(super) deposit: u32,
    pub(super) price: NonZeroU32,
    pub(super) per_second: u32,
    pub(super) burst: NonZeroU32,
}

// === impl Ledger ===

impl Ledger {
    pub(super) fn new() -> Self {
        Self {
            owing: AtomicUsize::new(0),
            book: Mutex::new(Book::default()),
        }
    }

    #[inline]
    pub(super) fn has_debts(&self) -> bool {
        // Relaxed, like the stores under the lock: a request that misses a debt of just now came
        // before it, when its deposit had no debt to go to.
        self.owing.load(Ordering::Relaxed) > 0
    }

    /// Lends the price of a retry, unless the host would owe more than its burst.
    pub(super) fn borrow(&self, host: &str, rates: &Rates, now: Instant) -> bool {
        let mut book = self.lock();
        book.sweep(rates, now);
        let before = book.debts.get(host);
        let owed = before.map_or(0, |debt| debt.owed(rates, now));
        let owed = owed.saturating_add(rates.price());
        // Another thread may have read its clock later and come earlier.
        let at = before.map_or(now, |debt| debt.at.max(now));
        let lent = owed <= rates.most();
        if lent {
            book.debts.insert(host.into(), Debt { owed, at });
        }
        self.owing.store(book.debts.len(), Ordering::Relaxed);
        lent
    }

    /// Takes `worth` off what the host owes.
    ///
    /// What time has earned comes off when the host borrows: both only lessen a debt, so that their
    /// order changes nothing.
    pub(super) fn repay(&self, host: &str, worth: u128, rates: &Rates, now: Instant) {
        let mut book = self.lock();
        book.sweep(rates, now);
        if let Some(debt) = book.debts.get_mut(host) {
            debt.owed = debt.owed.saturating_sub(worth);
            if debt.owed == 0 {
                book.debts.remove(host);
            }
        }
        self.owing.store(book.debts.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        // Nothing in here panics halfway.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Book ===

impl Book {
    /// Forgets, once a second at most, the hosts that time has freed, and those with no retry for
    /// long, for budgets that time earns nothing: nobody may ask for them again.
    fn sweep(&mut self, rates: &Rates, now: Instant) {
        let due = self
            .swept
            .is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP);
        if due {
            self.swept = Some(now);
            self.debts.retain(|_, debt| {
                let age = now.saturating_duration_since(debt.at);
                age < FORGOTTEN && debt.owed(rates, now) > 0
            });
        }
    }
}

// === impl Debt ===

impl Debt {
    fn owed(&self, rates: &Rates, now: Instant) -> u128 {
        let elapsed = now.saturating_duration_since(self.at);
        self.owed.saturating_sub(rates.earned(elapsed))
    }
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

/// Longer than any outage that one would still make a host pay for.
const FORGOTTEN: Duration = Duration::from_secs(3_600);

/// Short against the ten seconds in which a default debt is forgotten, long against a request.
const SWEEP: Duration = Duration::from_secs(1);

/// Nanoseconds in a second: the earnings of a nanosecond are whole parts too.
const FINE: u128 = 1_000_000_000;
