//! Tower layers that keep connections and requests inside a service's limits, by proof.
//!
//! ```text
//! request -> RequestLimit ------------> your client -> ConnectionLimit -> connect
//!            in flight to the end of    (hyper, TLS)   one permit a socket, from
//!            the body, rules by proof                  before connect to the server's close
//! ```
//!
//! Limiters that bound the times of sending earn refusals as soon as delays vary: requests sent a second
//! apart may arrive together. This one holds each permit until an interval after the response has *proved*
//! that the service counted the request. Then no interval holds more than the quota, whatever the network does.
//!
//! ```
//! use std::convert::Infallible;
//! use http::{Request, Response};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_tds_limits::{Limiter, Limits, RequestLimitLayer};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), tower_tds_limits::Error<Infallible>> {
//! let limiter = Limiter::new(Limits::default()); // 50 in any second, 60 connections
//! let service = ServiceBuilder::new()
//!     .layer(RequestLimitLayer::new(limiter.clone()))
//!     .service(service_fn(async |_request: Request<String>| {
//!         Ok::<_, Infallible>(Response::new(String::from("bus 307")))
//!     }));
//!
//! let response = service.oneshot(Request::new(String::new())).await?;
//! assert_eq!(limiter.snapshot().in_flight, 1); // until the end of the body
//! drop(response);
//! assert_eq!(limiter.snapshot().in_flight, 0);
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//! - In any interval of a quota's length the service counts at most the quota: fixed windows of
//!   any phase, sliding logs, whether or not the refused are counted, and token buckets.
//! - By default also for counters that weigh the window before, and for leaky buckets with a burst of
//!   ten ([`Rules`]), these while half of the answers take less than 120 ms: beyond, [`Burst::Auto`]
//!   gives up the proof before the throughput. With [`Proof::End`] also for services that count
//!   whatever was in flight during the interval.
//! - Requests between their grant and the end of their bodies, and sockets from before `connect` until the
//!   server has closed them (awaited for 30 s at most), never exceed their limits.
//! - Waiters go first in, first out (but for [`Limiter::first_in_line`]); one that is dropped leaves
//!   nothing behind, and one that does not look when it is its turn is passed over after 5 ms.
//! - A call that is not polled costs its own place and nobody else's, and a readied service that is
//!   kept costs nothing after 50 ms. What slow and lost calls cost, by default:
//!
//! | calls | what the others have, of 50 a second |
//! |---|---|
//! | ten slow ones, or never answered | half of the rate and more, after a second in which nobody can tell |
//! | 11 to 25 of them, made together | nothing for some seconds, eight at most: a network that stands still looks the same; then what the window leaves |
//! | *n* that are lost | 50 - *n* or less, for [`Limits::lost_after`] and a second |
//!
//! [`Rules::window`] alone stops nobody, and is no proof for buckets; [`Burst::Of`] is one, and stops all
//! while more are unproven than it has. Under [`Burst::Auto`] a bucket of ten may refuse after longer stalls
//! than three seconds.
//!
//! # The argument
//! A request is counted between its grant and its proof. If at every grant at most `n - 1` others are
//! unproven or proven within the last interval, then no interval of the service holds more than `n`,
//! however long the delays are. Proof, assumptions, other rules: [`_design`].
//!
//! # If it is refused all the same
//! Then the service is stricter than assumed, or somebody else uses the quota. A 423 means a second of
//! silence for the address, and three with at most fifty answers between them lead one [`Rung`] down; a 416 a second
//! of silence, and one socket fewer for ten minutes; a 429 pauses its credential ([`_design`], "What a refusal means"). [`Feedback`]
//! reads that from responses, or from your errors; [`Limiter::snapshot`] and `tracing` events tell.
//!
//! What was sent is counted, whether or not somebody waits: [`DetachLayer`] around the limit sees dropped
//! calls to their end. Which clients take the connection limit: [`ConnectionLimit`].
//!
//! # Non-goals
//! - Speed where arrivals are smoothed without any burst: only one request at a time is safe there
//!   ([`Rung::Serial`]).
//! - Limits that several processes share: [`Limits::shares`] divides them by hand.
//! - Several hosts that share one connection limit: a host waits for the idle timeout of another's sockets.
//! - HTTP/2: a socket that carries it counts as one.

mod account;
mod clock;
mod connection;
mod credential;
mod error;
mod events;
mod limiter;
mod limits;
mod quota;
mod request;
mod rule;
mod rules;
mod sync;
mod wait;
mod waits;

pub use self::{
    account::Rung,
    connection::{ConnectionLimit, ConnectionLimitLayer, LimitedIo},
    error::{Error, LimitError},
    events::{WAIT_CAUSE_FIELD, WAIT_SECONDS_FIELD},
    limiter::{Limiter, Snapshot},
    limits::{Limits, Proof, Share},
    quota::Quota,
    request::{
        Attached, Detached, Feedback, Outcome, PermitBody, ReadResponse, ReadStatus, RequestLimit,
        RequestLimitLayer,
    },
    rules::{Burst, Rules},
    waits::WaitCause,
};

/// The futures of this crate's services.
pub mod future {
    pub use crate::request::{DetachedCall, ResponseFuture, SentCall};
}

#[cfg(doc)]
#[doc = include_str!("../DESIGN.md")]
pub mod _design {}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
