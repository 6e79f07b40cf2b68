//! The layer with a real Keycloak, and the simulated token endpoint compared with it.
//!
//! `.ci/keycloak` installs the server; without it, each test prints SKIPPED. Requests are counted
//! in the server's access log. The server runs in real time, so some tests take seconds. No test
//! asserts on wall-clock time.

#![cfg(unix)]
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

mod admin;
pub(crate) mod data;
mod drift;
mod load;
mod log;
mod methods;
mod realm;
mod server;
pub(crate) mod trouble;
pub(crate) mod wire;
