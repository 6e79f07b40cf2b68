//! Tower layers that keep connections and requests inside a service's limits, by proof.
//!
//! ```text
//! request -> RequestLimit ------------> your client -> ConnectionLimit -> connect
//!            in flight to the end of    (hyper, TLS)   one permit a socket, from
//!            the body, rules by proof                  before connect to the server's close
//! ```
//!
//! Limiters that bound the times of sending earn refusals as soon as delays vary: fifty
//! requests sent a second apart may arrive together. This one holds each permit until an
//! interval after the response has *proved* that the service counted the request. Then no
//! interval at the service can hold more than the quota, whatever the network does in between.
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
//! - Requests between their grant and the end of their bodies, and sockets from before
//!   `connect` until the server has closed them (awaited for 30 s at most), never exceed their
//!   limits.
//! - A connect that waits is given the place of an idle socket, of whichever host or client, within
//!   a tenth of a second and the server's close, and otherwise of one that becomes idle, in its
//!   turn; a socket that carries a request is never cut for it ([`ConnectionLimit`], "Reclaim").
//! - Waiters go first in, first out (but for [`Limiter::first_in_line`]), one is woken at a time,
//!   and one that is dropped leaves nothing behind. One that does not look when it is its turn is
//!   passed over after 5 ms.
//! - A call that is slow, lost or not polled costs its own place and nobody else's, and a readied
//!   service that is kept costs nothing after 50 ms.
//!
//! What unproven requests cost the others, of 50 a second where answers take 80 ms, by default:
//!
//! | calls that are slow, or never answered | the others' rate |
//! |---|---|
//! | ten, for as long as they last | 36 a second; about none in their first second, which it takes to tell slow from quick |
//! | 11 to 25 that are made together | none for two to five seconds, because a network that stands still looks the same; then what the window leaves: 36 and 28 for 11 and 20 |
//! | *n* that are lost | 50 - *n* a second or less, for [`Limits::lost_after`] and a second |
//!
//! [`Rules::window`] alone stops nobody, and is no proof for buckets; [`Burst::Of`] is one, and stops all
//! for as long as more are unproven than it has. In the other direction, a bucket of ten refuses under
//! [`Burst::Auto`] where the network holds up more than that for longer, and then lets it go at once: none
//! after a stall of three seconds, 28 after one of six, 38 after longer ones; 8 where ten requests were held up for two.
//! Each time a rung is lost for ten minutes.
//!
//! # The argument
//! A request is counted at some time between its grant and its proof, the response. Take any
//! interval, and of the requests counted in it the one that was granted last. At its grant each
//! of the others was either unproven, or proven within that interval. So if at every grant at most
//! `n - 1` others are unproven or proven within the last interval, no interval holds more than `n`,
//! however long the delays are; and nobody who sees only grants and proofs can safely send earlier.
//! What that assumes, and the proofs for the other rules: [`_design`].
//!
//! # If it is refused all the same
//! Then the service is stricter than assumed, or somebody else uses the quota.
//!
//! | answer | concerns | what follows |
//! |---|---|---|
//! | 423 | the address | a second of silence; three among a hundred answers lead one [`Rung`] down, and ten minutes up again |
//! | 416 | the address | its socket and idle ones are closed; if it was a new socket's, or several come together, a second of silence, one connect at a time, and then fewer for ten minutes |
//! | 429 | the credential | it pauses as long as the service says, and then one request tries; if that is longer than a minute, calls are told so at once, and one a minute tries |
//!
//! [`Feedback`] reads that from responses, or from your errors. [`Limiter::snapshot`] shows it, and
//! `tracing` events tell when it changes.
//!
//! # When callers hang up
//! What was sent is counted, whether or not somebody waits for the answer: put [`DetachLayer`]
//! around the limit, and dropped calls are seen to their end.
//!
//! # Clients
//! The request limit goes around any service of `http::Request`. The connection limit goes around the TCP
//! connector of hyper-util's clients and of tonic, under TLS; reqwest lets none in, and is bounded by a sum.
//! Client by client: [`ConnectionLimit`].
//!
//! # Non-goals
//! - Speed where arrivals are smoothed without any burst: only one request at a time is safe there.
//!   The ladder finds that by about ten refusals; [`Limits::start_at`] with [`Rung::Serial`] begins
//!   there.
//! - Sharing limits between processes by itself: [`Limits::shares`] divides them, and [`Leases`] is where
//!   a store comes in.

mod account;
mod clock;
mod connection;
mod credential;
mod error;
mod events;
mod leases;
mod limiter;
mod limits;
mod queue;
mod quota;
mod request;
mod rule;
mod rules;
mod sync;
mod waits;

pub use self::{
    account::Rung,
    connection::{Background, ConnectionLimit, ConnectionLimitLayer, LimitedIo, Track},
    error::{Error, LimitError},
    leases::{AskLease, Ended, Lease, LeaseFuture, Leases},
    limiter::{Limiter, Snapshot},
    limits::{Limits, Proof},
    quota::Quota,
    request::{
        Detach, DetachLayer, Feedback, Outcome, PermitBody, ReadResponse, ReadStatus, RequestLimit,
        RequestLimitLayer, Served, held,
    },
    rules::{Burst, Rules},
    waits::{WaitCause, Waited},
};

/// The named futures of this crate's services.
pub mod future {
    pub use crate::{
        connection::{BackgroundTask, TrackFuture},
        request::{DetachFuture, ResponseFuture},
    };
}

#[cfg(doc)]
#[doc = include_str!("../DESIGN.md")]
pub mod _design {}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
