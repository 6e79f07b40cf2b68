//! The simulator on sockets: what a plain HTTP client gets, and what the ledger says about it.

mod basics;
mod client;
