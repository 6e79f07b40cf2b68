//! One rate limit and one token for several processes behind one address.
//!
//! ```text
//! process 1: Limiter with a share --+
//! process 2: Limiter with a share --+--> Redis or Valkey: one hash of shares, one sealed token
//! process 3: Limiter with a share --+
//! ```
//!
//! [`Fleet`] divides the limits of a [`Limiter`](tower_tds_limits::Limiter) among its members. Each
//! keeps within a share, which a task renews by a *question* to the store, usually one to four
//! times a second. Give [`RedisTokens`], a [`TokenStore`](tower_oidc_cc::TokenStore), to your token
//! source, and the members make one token request together.
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `ring`, `aws-lc-rs` | no | `rediss://` with this cryptography; with both, `aws-lc-rs` |
//! | `tls` | no | `rediss://` with the `CryptoProvider` of the program |
//! | `metrics` | no | gauges of the share, and a count of questions |
//!
//! # Guarantees
//! - All members together stay within the limits of requests and of sockets, and within the
//!   [places](tower_tds_limits::Share::places) of a leaky bucket. This includes what may still be in use.
//! - Busy members never wait for the store. If it is unreachable, a member sends until its share
//!   ends, five seconds after its last answered question.
//! - If the token store is unreachable, that costs each process a token request, and no call fails.
//! - Reading the store shows neither the token nor the secret, and writing to it cannot inject
//!   another token.
//!
//! For the reasons and the assumptions, see [`_design`].
//!
//! # Non-goals
//! - Safety with two masters, or with a virtual machine that is paused while it writes a request.
//! - Quotas whose intervals are longer than a minute, or differ between members.
//! - Speed with more than eleven busy members under the default rules.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod error;
mod fleet;
mod member;
mod record;
mod store;
mod tls;
mod token;

pub use redis;

pub use self::{
    error::FleetError,
    fleet::Fleet,
    record::Record,
    store::{FleetStatus, Store},
    token::RedisTokens,
};

#[cfg(doc)]
#[doc = include_str!("../DESIGN.md")]
pub mod _design {}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
