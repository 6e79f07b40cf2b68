//! Token, limits and errors for a public transport data service, over hyper and rustls.
//!
//! ```text
//! request -> Retry -> RequestLimit -> BearerAuth -> Classify -> hyper client -> TLS -> ConnectionLimit -> TCP
//! ```
//!
//! [`Client`] is a [`tower_service::Service`] that always has a valid token and stays inside the
//! service's limits on any network. It returns a success or one typed error with the next step. The
//! layers come from [`tower_oidc_cc`], [`tower_tds_limits`] and [`tower_tds_errors`], which work
//! alone; this crate puts them in order.
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
//! A path is appended to the base URL byte for byte. [`Client::request`] sends any request with any
//! [`RequestBody`]. A [`Response`] has its bytes, text, JSON or pieces. [`Call::deadline`] bounds one
//! call, and [`Builder::deadline`] all. Code that is generic over the `Service` takes a fake in a test:
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
//! - One token request serves all clones. The token is renewed ahead of expiry, off the request path.
//! - At most 50 requests are counted in any second and 60 sockets are open, by the argument on the
//!   front page of [`tower_tds_limits`]. Retries and token calls are included, and so are several
//!   clients with [`SharedLimits`].
//! - A response is a success (2xx or 304). Any other outcome is an [`Error`]. A body that ends
//!   early or stalls gives an error with the bytes received and expected. A body with neither a
//!   length nor chunks may be incomplete: [`ResponseBody::is_verifiable`].
//!
//! # Features
//! | feature | default | adds |
//! |---|---|---|
//! | `ring` | yes | ring does the cryptography of TLS |
//! | `aws-lc-rs` | no | aws-lc does it; it needs a C compiler |
//! | `compression` | no | `Builder::compression`: bodies may arrive in br and gzip |
//! | `json` | no | [`Response::json`] |
//! | `serde` | no | [`Status`] can be serialized |
//! | `metrics` | no | calls, attempts and waits are counted for the `metrics` facade, and `Status::record` sets the rest |
//!
//! [`TdsLayer`] is the same stack around any other client, in one line. [`layers`] has the parts for
//! another order.
//!
//! # Non-goals
//! - A mode without certificate checks.
//! - The service's data: paths, queries and payloads are the caller's.
//! - The environment's proxies by default: see [`Builder::proxy`] and [`Builder::env_proxies`].
//! - HTTP/2, reqwest and `traceparent` in [`Client`]: `COOKBOOK.md` has a recipe for each.
//! - Another connection after a 421: it is retried as any other temporary refusal.

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
