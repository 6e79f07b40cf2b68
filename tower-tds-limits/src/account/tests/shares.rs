//! Several processes that know nothing of each other, as one server counts them.

use super::*;

/// Each process always backlogged for about 100 s, or not at all.
fn counted_of_shares(processes: u32, busy: usize, delays: Delays) -> Vec<Duration> {
    let limits = Limits::default().in_flight(count(500));
    let shares = limits.shares(count(processes)).expect("few enough");
    let mut counted = Vec::new();
    for (share, seed) in shares.iter().zip(1..).take(busy) {
        let quota = share.quotas().first().expect("one");
        let n = quota.requests().get() * 100;
        counted.extend(counted_within(share, n, seed, delays).0);
    }
    counted.sort_unstable();
    counted
}

#[test]
fn shares_are_together_safe_against_every_way_of_counting_under_any_delays() {
    for processes in [2, 4, 11] {
        for (name, delays) in DELAYS {
            let counted = counted_of_shares(processes, 11, delays);
            let second = largest_second(&counted);
            assert!(second <= 50, "{processes}, {name}: {second} in a second");
            let level = largest_level(&counted);
            assert!(level <= 10.0 + 1e-6, "{processes}, {name}: {level}");
            let counted = counted.get(..1_500).unwrap_or(&counted);
            let weighted = largest_weighted_second(counted);
            assert!(weighted <= 50.0 + 1e-6, "{processes}, {name}: {weighted}");
        }
    }
}

#[test]
fn four_busy_processes_are_nearly_as_fast_as_one_and_one_of_four_has_a_quarter() {
    // The table of `Limits::shares`.
    let rate = |processes, busy| {
        let counted = counted_of_shares(processes, busy, usual);
        let middle = Duration::from_secs(10)..Duration::from_secs(90);
        counted.iter().filter(|at| middle.contains(*at)).count() / 80
    };
    let rates = [rate(1, 1), rate(4, 4), rate(4, 1)];
    for (rate, expected) in rates.into_iter().zip([42, 39, 10]) {
        assert!(rate.abs_diff(expected) <= 1, "{rates:?}");
    }
}
