//! The simulator on sockets: what a plain HTTP client gets, and what the ledger says about it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::arithmetic_side_effects,
    reason = "a test's own client fails the test, and so should an overflow"
)]

mod admin;
mod basics;
mod client;
mod connections;
mod tls;
mod wire;
