//! The layer beside a token endpoint and a data service that count what reaches them.

#[path = "../support/support.rs"]
mod support;

mod adverse;
mod api;
mod client_auth;
mod clocks;
mod contract;
mod day;
mod everybody;
mod file_store;
mod flight;
mod health;
mod policies;
mod programs;
mod providers;
mod refusal;
mod refused;
mod renewal;
mod shutdown;
mod store;
mod tls;
