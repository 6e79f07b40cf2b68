//! One rate limit and one token for several processes behind one address, by leases in Redis.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use self::token::RedisTokens;
pub use redis;

mod tls;
mod token;
