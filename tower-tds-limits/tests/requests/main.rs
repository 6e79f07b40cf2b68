//! The request limit as its callers see it: the `Service` contract, outcomes, pauses, dropped calls.

#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

mod api;
mod bounds;
mod cancel;
mod contract;
mod dropped;
mod events;
mod hand_over;
mod isolation;
mod limited;
mod overload;
mod pause;
mod rate;
mod service;
mod stacks;
mod wait;

use std::time::Duration;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
