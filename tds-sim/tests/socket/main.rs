//! The simulator on sockets and as a program: what a plain HTTP client gets, and what the ledger has.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test's own client fails the test, and so should an overflow"
)]

mod basics;
mod client;
mod connections;
mod controls;
mod data;
mod ledger;
mod oidc;
mod page;
mod program;
mod readme;
mod tls;
mod wire;
