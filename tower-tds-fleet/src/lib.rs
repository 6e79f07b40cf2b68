//! One access token for several processes, kept sealed in Redis.
//!
//! ```text
//! process 1 --+
//! process 2 --+--> Redis or Valkey: one sealed token, one lease for its refresh
//! process 3 --+
//!      |
//!      +---------> token endpoint: asked by the process that has the lease
//! ```
//!
//! [`RedisTokens`] is a [`TokenStore`] for a [`TokenSource`]. Processes that share it make one token request between
//! them, at the start and at each renewal.
//!
//! [`TokenSource`]: tower_oidc_cc::TokenSource
//! [`TokenStore`]: tower_oidc_cc::TokenStore
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `ring`, `aws-lc-rs` | no | `rediss://`, with this cryptography; with both it is aws-lc |
//! | `tls` | no | `rediss://`, with the `CryptoProvider` that the program has installed |
//!
//! # Guarantees
//! - A store that is unreachable, hangs or is empty costs each process a token request, and fails
//!   no call.
//! - A reader of the store learns neither the token nor the secret. A writer cannot inject a token of its own.
//!
//! The reasons: [`_design`].
//!
//! # Non-goals
//! - A shared quota. Each process keeps its own limits; divide them by hand.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod error;
mod fleet;
mod member;
mod store;
mod tls;
mod token;

pub use redis;

pub use self::{
    error::{FleetError, FleetErrorKind},
    fleet::{Fleet, FleetStatus},
    store::Store,
    token::RedisTokens,
};

#[cfg(doc)]
#[doc = include_str!("../DESIGN.md")]
pub mod _design {}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
