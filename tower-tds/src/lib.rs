//! Token, limits and errors for a public transport data service, over hyper and rustls.
//!
//! ```text
//! request -> Retry -> Token -> Detach, RequestLimit -> Classify -> Decompression -> Guard -> hyper client
//!         -> TLS -> ConnectionLimit -> TCP
//! ```
//!
//! [`Client`] is a [`tower_service::Service`] that always has a valid token, stays inside the
//! service's limits whatever the network does, and answers with success or with one typed error
//! that says what to do next. The layers come from [`tower_oidc_cc`], [`tower_tds_limits`] and
//! [`tower_tds_errors`], which can each be used alone; this crate only puts them in order.
//!
//! ```no_run
//! use tower_tds::Client;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! // TDS_AUTH_URL, TDS_BASE_URL, TDS_CLIENT_ID and TDS_CLIENT_SECRET; or `Client::builder`.
//! let client = Client::from_env()?;
//! let bus = client.get("/v1/live/bus").await?.text().await?;
//! println!("{bus}");
//! # Ok(())
//! # }
//! ```
//!
//! A path is put under the base URL byte for byte. [`Client::request`] sends any request with any
//! [`RequestBody`]; a [`Response`] gives its bytes, text, JSON or pieces; [`Call::deadline`] bounds one
//! call, and [`Builder::deadline`] all. The client is a `Service`, too, for stacks and fakes of one's own:
//!
//! ```
//! use tower::{Service, ServiceExt, service_fn};
//! use tower_tds::{Error, Kind, RequestBody, ResponseBody};
//!
//! async fn bus<S>(service: S) -> Result<bytes::Bytes, Error>
//! where
//!     S: Service<http::Request<RequestBody>, Response = http::Response<ResponseBody>, Error = Error>,
//! {
//!     let mut request = http::Request::new(RequestBody::default());
//!     *request.uri_mut() = http::Uri::from_static("/v1/live/bus");
//!     service.oneshot(request).await?.into_body().bytes().await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let fake = service_fn(async |request: http::Request<RequestBody>| match request.uri().path() {
//!     "/v1/live/bus" => Ok(http::Response::new(ResponseBody::from("{}"))),
//!     _ => Err(Error::new(Kind::NotFound, "no such line")),
//! });
//! assert_eq!(bus(fake).await?, "{}");
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//! - One token call serves all clones; it is renewed ahead of expiry, off the request path.
//! - At most 50 requests are counted in any second and 60 sockets are open, by the argument on
//!   the front page of [`tower_tds_limits`]. Retries and token calls stay within it too, and so do
//!   several clients ([`SharedLimits`]).
//! - A response is a success (2xx or 304). Everything else is an [`Error`], and so is a body that
//!   breaks off or goes silent: it ends by one, with the bytes received and expected. Of one without length and
//!   chunks nobody knows: [`ResponseBody::is_verifiable`].
//!
//! # Features
//! | feature | default | adds |
//! |---|---|---|
//! | `ring` | yes | ring does the cryptography of TLS |
//! | `aws-lc-rs` | no | aws-lc does it; it needs a C compiler |
//! | `compression` | no | `Builder::compression`: bodies may come by br and gzip |
//! | `json` | no | [`Response::json`] |
//! | `serde` | no | [`Status`] can be serialized |
//! | `metrics` | no | calls, attempts and waits are counted for the `metrics` facade, and `Status::record` sets the rest |
//!
//! The rest is the whole. [`TdsLayer`] is the same around any other client, in one line, and [`layers`] has
//! the parts for another order.
//!
//! # Non-goals
//! - A mode without certificate checks.
//! - Knowing the service's data: paths, queries and payloads are the caller's.
//! - Reading the environment's proxies unasked: see [`Builder::proxy`] and [`Builder::env_proxies`].
//! - HTTP/2, reqwest and `traceparent` in [`Client`]: `COOKBOOK.md` has a recipe for each.
//! - Another connection after a 421: it is retried as any other answer that may pass.

mod base;
mod body;
mod builder;
mod call;
mod calls;
mod client;
mod compression;
mod error;
mod layer;
pub mod layers;
mod limiters;
#[cfg(feature = "metrics")]
mod metrics;
mod proxy;
mod request;
mod response;
mod status;
mod tls;
mod trace;
mod translate;
mod transport;

pub use tower_oidc_cc::{Credentials, Provider};
pub use tower_tds_errors::{Deadline, Error, Kind};
pub use tower_tds_limits::{Limiter, Limits, Proof, Quota};

pub use self::{
    body::ResponseBody,
    builder::Builder,
    call::{Call, CallFuture},
    client::{Client, ResponseFuture},
    error::BuildError,
    layer::{TdsLayer, TdsService},
    limiters::SharedLimits,
    request::RequestBody,
    response::Response,
    status::Status,
    trace::{Traced, TracedFuture},
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../COOKBOOK.md")]
struct Cookbook;
