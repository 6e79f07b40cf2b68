//! The ledger under every interleaving of threads, with loom's locks and atomics.

use std::num::NonZeroU32;
use std::time::Duration;

use loom::sync::Arc;
use tokio::time::Instant;

mod sync {
    pub(super) use std::sync::PoisonError;

    pub(super) use loom::sync::atomic::{AtomicUsize, Ordering};
    pub(super) use loom::sync::{Mutex, MutexGuard};
}

#[expect(
    clippy::duplicate_mod,
    reason = "the ledger as it is, on other locks and atomics"
)]
#[path = "../debts.rs"]
mod debts;

use debts::{Ledger, Rates};

fn rates(deposit: u32, price: u32, burst: u32) -> Rates {
    let n = |n| NonZeroU32::new(n).unwrap();
    Rates {
        deposit,
        price: n(price),
        per_second: 0,
        burst: n(burst),
    }
}

/// A request that deposits as the layer does, and one retry of it.
fn call(ledger: &Ledger, rates: &Rates, now: Instant) -> u32 {
    if ledger.has_debts() {
        ledger.repay("a", rates.deposit(), rates, now);
    }
    u32::from(ledger.borrow("a", rates, now))
}

#[test]
fn threads_together_get_no_more_than_one() {
    let now = Instant::now();
    loom::model(move || {
        let rates = rates(1, 2, 1);
        let ledger = Arc::new(Ledger::new());
        let other = Arc::clone(&ledger);
        let thread =
            loom::thread::spawn(move || call(&other, &rates, now) + call(&other, &rates, now));
        let mine = call(&ledger, &rates, now);
        let granted = mine + thread.join().unwrap();
        // A burst of one, and three deposits of a half.
        assert!((1..=2).contains(&granted), "{granted}");
    });
}

#[test]
fn what_threads_give_back_is_all_there_again() {
    let now = Instant::now();
    loom::model(move || {
        let rates = rates(0, 1, 1);
        let ledger = Arc::new(Ledger::new());
        let other = Arc::clone(&ledger);
        let take_and_give = move |ledger: &Ledger| {
            if ledger.borrow("a", &rates, now) {
                let later = now + Duration::from_nanos(1);
                ledger.repay("a", rates.price(), &rates, later);
            }
        };
        let thread = loom::thread::spawn(move || take_and_give(&other));
        take_and_give(&ledger);
        thread.join().unwrap();
        assert!(!ledger.has_debts());
        assert!(ledger.borrow("a", &rates, now));
    });
}
