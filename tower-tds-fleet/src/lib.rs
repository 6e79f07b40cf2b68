//! One rate limit and one token for several processes behind one address, by leases in Redis.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod driver;
mod error;
mod fleet;
mod member;
mod script;
mod tls;
mod token;

pub use redis;

pub use self::{
    error::FleetError,
    fleet::{Fleet, FleetStatus},
    token::RedisTokens,
};
