//! The script of the leases, run as Redis runs it, without one.

mod alike;
mod shares;
mod store;
