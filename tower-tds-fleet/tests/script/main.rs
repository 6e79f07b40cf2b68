//! The script of the leases, run as Redis runs it, without one.
#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]
#![expect(clippy::print_stdout, reason = "the tables that a run is made for")]
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a surprise in a test is a failed test"
)]

mod alike;
#[path = "../../src/clock.rs"]
mod clock;
#[path = "../../src/member.rs"]
#[expect(dead_code, reason = "the thread of a member needs more of it")]
mod member;
mod memory;
mod shares;
mod simulation;
mod store;
mod told;
