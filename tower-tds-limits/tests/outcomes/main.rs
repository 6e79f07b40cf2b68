//! Outcomes of requests: silence, a stricter rung, a pause, and calls that outlive their callers.

#![expect(
    clippy::expect_used,
    clippy::arithmetic_side_effects,
    reason = "a surprise in a test is a failed test"
)]

mod cancel;
mod detach;
mod events;
mod late;
mod limited;
mod others;
mod pause;
mod rate;
mod service;
mod wait;

use std::time::Duration;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
