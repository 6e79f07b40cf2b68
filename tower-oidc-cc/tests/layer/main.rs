//! The layer beside a token endpoint and a data service that count what reaches them.

#[path = "../support/support.rs"]
pub(crate) mod support;

mod api;
mod backoff;
mod client_auth;
mod clocks;
mod contract;
mod file_store;
mod flight;
mod health;
mod policies;
mod programs;
mod providers;
mod random_faults;
mod rejection;
mod renewal;
mod runtimes;
mod shutdown;
mod sockets;
mod store;
mod two_tokens;
mod usage;
