//! Token, limits and errors for a public transport data service, over hyper and rustls.
//!
//! ```text
//! request -> Retry -> Token -> Detach, RequestLimit -> decoder -> Guard, Classify -> hyper client
//!         -> ConnectionLimit -> TLS
//! ```
//!
//! [`Client`] is a [`tower_service::Service`] that always has a valid token, stays inside the
//! service's limits whatever the network does, and answers with success or with one typed error
//! that says what to do next. The layers come from [`tower_oidc_cc`], [`tower_tds_limits`] and
//! [`tower_tds_errors`], which can each be used alone; this crate only puts them in order.
//!
//! ```no_run
//! use http_body_util::BodyExt;
//! use tower::ServiceExt;
//! use tower_tds::{Client, Credentials, RequestBody};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let credentials = Credentials::new("my-client-id", std::env::var("TDS_CLIENT_SECRET")?)?;
//! let client = Client::builder("https://auth.example.org", "https://data.example.org", credentials)
//!     .build()?;
//!
//! let request = http::Request::get("https://data.example.org/v1/live/bus")
//!     .body(RequestBody::default())?;
//! let response = client.clone().oneshot(request).await?;
//! let bus = response.into_body().collect().await?.to_bytes();
//! # drop(bus);
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//! - One token call serves all clones; it is renewed ahead of expiry, off the request path.
//! - At most 50 requests are counted in any second and 60 sockets are open, by the argument on
//!   the front page of [`tower_tds_limits`]. Retries and token calls stay within it too, and so do
//!   several clients ([`Builder::beside`]).
//! - A response is a success (2xx or 304). Everything else is an [`Error`], and so is a body that
//!   breaks off or goes silent: it ends by one, with the bytes received and expected.
//!
//! # Features
//! | feature | default | adds |
//! |---|---|---|
//! | `claims` | no | the error of a missing role names the realm roles that the token does carry (read, **not verified**): [`Error::realm_roles`] |
//!
//! The rest is the whole, and [`layers`] has its parts.
//!
//! # Non-goals
//! - A mode without certificate checks.
//! - Knowing the service's data: paths, queries and payloads are the caller's.
//! - Proxies: `HTTP_PROXY` and its like are not read. A stack of one's own ([`layers`]) takes any
//!   connector.

mod base;
mod body;
mod builder;
mod call;
mod client;
mod compression;
mod error;
pub mod layers;
mod limiters;
mod misdirected;
mod proxy;
mod request;
mod response;
mod tls;
mod translate;
mod transport;

pub use tower_oidc_cc::{Credentials, Provider};
pub use tower_tds_errors::{Error, Kind};
pub use tower_tds_limits::{Limiter, Limits, Proof, Quota};

pub use self::{
    body::ResponseBody,
    builder::Builder,
    call::{Call, CallFuture},
    client::{Client, ResponseFuture},
    error::BuildError,
    request::RequestBody,
    response::Response,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
