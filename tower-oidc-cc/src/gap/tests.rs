#![expect(clippy::arithmetic_side_effects, reason = "a test may panic")]

use std::time::Duration;

use tokio::time::Instant;

use super::{CALM, Gap};

/// The moments, in seconds, at which refusals every `step` seconds are admitted up to `end`.
fn admitted(step: usize, end: u64) -> Vec<u64> {
    let start = Instant::now();
    let mut gap = Gap::default();
    (0..=end)
        .step_by(step)
        .filter(|secs| gap.admit_at(start + Duration::from_secs(*secs)))
        .collect()
}

#[test]
fn constant_refusals_are_admitted_at_a_growing_distance() {
    assert_eq!(admitted(1, 10_000), [0, 60, 660, 4_260, 7_860]);
}

#[test]
fn slow_refusals_do_not_slip_under_the_growth() {
    assert_eq!(admitted(130, 7_000), [0, 130, 780, 4_420]);
}

#[test]
fn calm_forgets() {
    let start = Instant::now();
    let mut gap = Gap::default();
    assert!(gap.admit_at(start));
    assert!(gap.admit_at(start + Duration::from_secs(60)));
    let later = start + Duration::from_secs(60 + 600) + CALM;
    assert!(gap.admit_at(later));
    assert!(!gap.admit_at(later + Duration::from_secs(59)));
    assert!(gap.admit_at(later + Duration::from_secs(60)));
}
