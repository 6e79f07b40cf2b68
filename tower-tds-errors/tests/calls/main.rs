//! Calls through the layers: what they promise, under paused time.
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that panics fails"
)]

mod amplification;
mod answers;
mod api;
mod bounds;
mod contract;
mod earlier_attempts;
mod events;
mod kind_table;
mod outcomes;
mod probe;
mod retry;
mod secrets;
mod user_rules;
