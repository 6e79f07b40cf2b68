//! The layer beside a real Keycloak, and the simulated one beside it, answer by answer.
//!
//! `.ci/keycloak` installs the server; without it, each test prints SKIPPED. Requests are counted
//! in the server's access log. Its time is real, so some tests take seconds; none looks at how
//! many.

#![cfg(unix)]
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

mod admin;
mod away;
mod data;
mod drift;
mod load;
mod log;
mod methods;
mod realm;
mod rotation;
mod server;
mod trouble;
mod wire;
