//! Tower layers that keep connections and requests inside a service's limits, by proof.
//!
//! ```text
//! request -> RequestLimit ------------> your client -> ConnectionLimit -> connect
//!            in flight to the end of    (hyper, ...)   one permit a socket, from
//!            the body, proof window                    before connect to the server's close
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
//! - In any interval of a quota's length the service counts at most the quota, for every way of
//!   counting that lets through any so many arrivals in any such interval: fixed windows of any
//!   phase, sliding logs, whether or not the refused are counted, and, with [`Proof::End`],
//!   requests in flight during the interval. Assumed: delays are not negative, every request on
//!   the wire passes the limiter, nobody else uses the quota, and a lost request is counted
//!   within [`Limits::lost_after`] if at all.
//! - Requests between their grant and the end of their bodies, and sockets from before
//!   `connect` until the server has closed them (awaited for 30 s at most), never exceed their
//!   limits.
//! - Waiters go first in, first out, one is woken at a time, and one that is dropped leaves
//!   nothing behind.
//!
//! # Non-goals
//! - Services that smooth arrivals without any burst: they refuse whoever sends two at once.
//! - Sharing limits between processes.

mod connection;
mod error;
mod gate;
mod limiter;
mod limits;
mod quota;
mod request;
mod requests;
mod rule;
mod rules;

pub use self::{
    connection::{Background, ConnectionLimit, ConnectionLimitLayer, LimitedIo},
    error::{Error, LimitError},
    limiter::{Limiter, Snapshot},
    limits::{Limits, Proof},
    quota::Quota,
    request::{Feedback, Outcome, PermitBody, ReadStatus, RequestLimit, RequestLimitLayer},
    rules::{Burst, Rules},
};

/// The named futures of this crate's services.
pub mod future {
    pub use crate::{
        connection::{BackgroundTask, ConnectFuture},
        request::ResponseFuture,
    };
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
