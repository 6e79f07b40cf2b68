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
//! - **Requests.** In any interval of a quota's length the service counts at most the quota: by proof for
//!   fixed windows of any phase, sliding logs, sliding-window counters, and leaky buckets whose burst you
//!   give ([`Burst::Of`]); by evidence under the default, [`Burst::Auto`]. [`Proof::End`] is for services
//!   that count the requests in flight. [`_design`] has the proof and its assumptions.
//! - **Sockets and requests in flight** stay within their limits: [`LimitedIo`] and [`PermitBody`] say until
//!   when each counts.
//! - **Overload.** With [deadlines](DeadlineAt), what is sent is answered.
//! - **Isolation.** Nothing starves, and slow, lost, cancelled or unpolled calls cost only their own permits.
//!   If ten calls stall together, the others pause once, for about a second.
//!
//! [`RequestLimit`] describes the queue, deadlines, and what a dropped call costs.
//!
//! # Refusals
//! If your service refuses a call, it is stricter than assumed, or another client uses the same quota.
//!
//! | response | nothing is sent for | then |
//! |---|---|---|
//! | 423, too many requests | a second | requests are evenly spaced; each further one lowers the rate by a fifth, down to a sixth |
//! | 416, too many connections | a second | each one lowers the limit of connections by a sixth, down to a sixth |
//! | 429, quota of the key used up | its `Retry-After`, or a second at first | only the calls of the layer that got it pause |
//!
//! Ten minutes after the last 423 or 416 everything is restored. If your service refuses in other ways, put
//! an [`Outcome`] into the extensions of such responses, below this layer. [`Limiter::snapshot`] and
//! `tracing` events show each reaction.
//!
//! # Features
//! | feature | default | adds |
//! |---|---|---|
//! | `connect` | yes | [`ConnectionLimit`] around the connector of a hyper client; a failed connect of hyper-util counts as unsent |
//! | `metrics` | no | a histogram of waits, `tds_wait_seconds`, by cause |
//!
//! Without `connect` there is no hyper among the dependencies, and the crate compiles for wasm32, except for
//! `wasm32-unknown-unknown`, where std has no clock.
//!
//! # Non-goals
//! - The cause of a refusal. Beside another client of the quota, or where 423 often means something else,
//!   the rate stays lower, unless an [`Outcome`] of your own tells them apart.
//! - Several hosts behind one limiter: build one per host.
//! - Limits that several processes share: tower-tds-fleet divides them.
//! - Fairness among hosts that share one connection limit, and fairness finer than 5 ms among futures that
//!   are not polled.
//! - A limiter whose runtime has ended or is not driven. While one runtime is blocked, waiters of others on
//!   the same limiter may stop as well.
//! - HTTP/2: a socket counts as one connection.
//! - A server that counts sockets which close without a request, as `HAProxy` does if it counts from the
//!   connection on.
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
