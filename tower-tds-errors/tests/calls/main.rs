//! Calls through the layers: what they promise, under paused time.
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that panics fails"
)]

mod amplification;
mod api;
mod bounds;
mod contract;
mod events;
mod front_page;
mod known;
mod meaning;
mod probe;
mod retry;
mod secrets;
