//! One rate limit and one token for several processes behind one address, by leases in Redis.
//!
//! ```text
//! request -> RequestLimit: pause, place in flight, permit -> lease -> your client
//!                                                             |  ^
//!            one thread a process, one question at a time     v  |
//!            releases, renewals, wishes ----------------> lease.lua in the store -> grants, when to ask again
//! ```
//!
//! A [`Fleet`] is where a limiter of `tower-tds-limits` gets its leases ([`Leases`]): a request is sent
//! when it has one, and gives it back with its answer. [`RedisTokens`] keeps one token for all.
//!
//! [`Leases`]: tower_tds_limits::Leases
//!
//! # Examples
//! ```no_run
//! use tower_tds_fleet::Fleet;
//! use tower_tds_limits::{Limiter, Limits};
//!
//! # fn main() -> Result<(), tower_tds_fleet::FleetError> {
//! let limits = Limits::default(); // 50 in any second, all members together
//! let fleet = Fleet::join("redis://store:6379", "buses", &limits)?;
//! let limiter = Limiter::leased(limits, fleet);
//! # drop(limiter);
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//! - In any interval the service counts at most the quota, from all members together, by the rules of
//!   the limits: as in one process, and by the same proof.
//! - A lease is the last thing a request waits for; none is fetched ahead, and one that nobody waits for
//!   goes back at once; in a future that is kept and not polled it ends after 20 s. A lone call takes one
//!   round trip to the store.
//! - Members take turns. One that waits is told when to ask, and asks once a second at the least.
//! - A member that leaves ([`Fleet::leave`]) gives back its leases and its share at once; one that dies leaves them for
//!   20 s and eleven minutes.
//! - Without the store nothing is sent, or a share that was agreed on ([`WithoutStore`]). With one that has lost its memory nothing is sent until whatever
//!   was granted before is over.
//!
//! The argument, its assumptions and what each of them costs: [`_design`].
//!
//! # Non-goals
//! - Sockets: each process has its own number of them, [`Limits::connections`](tower_tds_limits::Limits::connections).
//! - Several quotas, and several credentials, in one fleet.
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
    fleet::{Fleet, FleetStatus, WithoutStore},
    token::RedisTokens,
};

#[cfg(doc)]
#[doc = include_str!("../DESIGN.md")]
pub mod _design {}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
