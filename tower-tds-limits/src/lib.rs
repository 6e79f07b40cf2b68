//! Tower layers that keep connections and requests inside a service's limits, by proof.
//!
//! ```text
//! request -> RequestLimit -----------> your client -> ConnectionLimit -> connect
//!            one permit for each       (hyper, TLS)   one permit for each socket, from
//!            request and quota                        before connect to the server's close
//! ```
//!
//! Spacing the requests is not enough: requests that you send a second apart may arrive together. A
//! response *proves* that the service has counted the request. This limiter keeps the request's
//! permit for one interval of the quota (with 50 requests in any second, a second) after that proof,
//! so no interval holds more requests than the quota, on any network.
//!
//! ```
//! use std::convert::Infallible;
//! use http::{Request, Response};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_tds_limits::{Limiter, Limits, RequestLimitLayer};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), tower_tds_limits::Error> {
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
//! - In any interval of a quota's length the service counts at most the quota. This holds for fixed
//!   windows of any phase, sliding logs, sliding-window counters, and leaky buckets whose burst you
//!   give ([`Burst::Of`]). With [`Proof::End`] it also holds for services that count the requests
//!   in flight. [`_design`] has the proof and its assumptions.
//! - For leaky buckets the default, [`Burst::Auto`], rests on evidence instead of proof. A hundred
//!   random buckets with a burst of ten or eleven, behind random networks, refused 3 of 10,000,000
//!   calls (`RULES_CALLS=100000 cargo test --release -p tower-tds --test rules random`). Where
//!   response heads arrive while their bodies stall, up to 580 of 100,000 were refused.
//! - Requests in flight stay within their limit, each until its response body ends, and open sockets
//!   within theirs ([`LimitedIo`] lists when a permit returns).
//! - With [deadlines](DeadlineAt), what you send under overload is answered, bodies too if the deadline
//!   includes them: 99 % of it at .9 to 2.4 times the quota, with deadlines of one and two seconds
//!   (`cargo test -p suites requests::overload`).
//! - Nothing starves, and slow, lost, cancelled or unpolled calls cost only their own permits
//!   ([`RequestLimit`] describes the queue). If ten calls stall together, the others pause once, for about
//!   a second.
//!
//! # Refusals
//! If your service refuses a call, it is stricter than assumed, or another client uses the same
//! quota. After a 423 (too many requests) nothing is sent for a second, and then requests are evenly
//! spaced; each further one lowers the rate by a fifth, down to a sixth. After a 416 (too many
//! connections) nothing is sent for a second, and the limit of connections falls by a sixth. Both are
//! whole again ten minutes after the last refusal. A 429 (quota used up) pauses the calls of the layer
//! that got it. If your service refuses in other ways, put an [`Outcome`] into the extensions of such
//! responses, below this layer. [`Limiter::snapshot`] and `tracing` events show each reaction.
//!
//! # Features
//! | feature | default | adds |
//! |---|---|---|
//! | `connect` | yes | [`ConnectionLimit`] around the connector of a hyper client; a failed connect of hyper-util counts as unsent |
//! | `metrics` | no | a histogram of waits, `tds_wait_seconds`, by cause |
//!
//! Without `connect` there is no hyper among the dependencies, and the crate compiles for wasm32.
//! It runs only where std has a clock, so not on `wasm32-unknown-unknown`.
//!
//! # Non-goals
//! - The cause of a refusal. Alongside another client of the same quota, or where 423 often means
//!   something else, the rate stays lower, down to a sixth, unless an [`Outcome`] of your own tells them apart.
//! - A sixth of the rate where even quick responses take so long that a tenth of the quota in flight
//!   is less (above 600 ms), while refusals go on.
//! - Several hosts behind one limiter. With [`Burst::Auto`], a response from one host counts
//!   as evidence for requests to the other (546 of 100,000 were refused). Build one limiter per host.
//! - Limits that several processes share: tower-tds-fleet divides them. Without it, give each
//!   process its part of each quota, of the requests in flight, of the sockets, and of the ten
//!   requests that a bucket takes at once: for `n` of these ten, set `Burst::Of(n - 1)`.
//! - Checking the `Content-Length` of a request, as the Retry of tower-tds-errors does: with one that
//!   is not its body's, a server may read one request as two.
//! - Services that count a request after their gateway has answered 502, later than a second after a 504, or
//!   later than half a second after it has ended the connection. Nor those that stand still while calls
//!   give up: an `HAProxy` that was stopped for 20 s under deadlines of 3 s then refused 42 of them.
//! - Fairness among hosts that share one connection limit, and fairness finer than 5 ms among
//!   futures that are not polled.
//! - Servers that count a socket which closed without a request, as `HAProxy` does if it counts from
//!   the connection on.
//! - HTTP/2: a socket counts as one connection.
//! - Knowing whether a dropped call was sent, without a deadline or over a client that does not mark its
//!   requests with [`HandOver`](tower_tds_outcome::HandOver): it counts as sent.
//! - Knowing from a client's own error that the peer has ended the connection, because a proxy may have:
//!   only a client that marks it shortens the time for which such a request counts.
//! - Inner services whose futures are not `Send + 'static`, because a task may complete them.
//! - Use of a limiter after its runtime has ended, or in a runtime that is not driven. While one
//!   runtime is blocked, the waiters of others on the same limiter may stop as well.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "connect"),
    expect(
        dead_code,
        reason = "sockets are counted by the connection limit alone"
    )
)]

mod account;
mod clock;
#[cfg(feature = "connect")]
mod connection;
mod error;
mod limiter;
mod limits;
mod pause;
mod request;
mod rule;
mod sockets;
mod wait;

#[cfg(feature = "connect")]
pub use self::connection::{ConnectionLimit, ConnectionLimitLayer, LimitedIo};
pub use self::{
    error::{Error, WaitCause},
    limiter::{Limiter, Load, Snapshot},
    limits::{Burst, Limits, Proof, Quota, Rules, Share},
    request::{RequestLimit, RequestLimitLayer, permit::PermitBody},
};

pub use tower_tds_outcome::{DeadlineAt, Outcome};

/// Future of this crate's services.
pub mod future {
    pub use crate::request::future::ResponseFuture;
}

#[cfg(doc)]
#[doc = include_str!("../DESIGN.md")]
pub mod _design {}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
