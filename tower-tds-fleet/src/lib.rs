//! One rate limit and one token for several processes behind one address, by leases in Redis.

mod clock;
mod driver;
mod error;
mod fleet;
mod member;
mod script;

pub use self::{
    error::FleetError,
    fleet::{Fleet, FleetStatus},
};
