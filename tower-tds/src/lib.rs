//! Token, limits and errors for a public transport data service, over hyper and rustls.
//!
//! ```text
//! request -> Retry -> RequestLimit -> BearerAuth -> Classify -> hyper client -> TLS -> ConnectionLimit -> TCP
//! ```
//!
//! [`Client`] is a [`tower_service::Service`] that keeps a valid token and stays inside the
//! service's limits on any network: by proof, and for leaky buckets by evidence. It returns a
//! success or one typed error with the next step. The layers come from [`tower_oidc_cc`],
//! [`tower_tds_limits`] and [`tower_tds_errors`], which work alone; this crate puts them in order.
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
//! [`RequestBody`]. A [`Response`] gives its body as bytes, text or JSON, or piece by piece.
//! [`Call::deadline`] bounds one call with its body, and [`Builder::deadline`] all.
//! [`Client::from_service`] is a client without sockets, for unit tests.
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
//! | `aws-lc-rs` | no | aws-lc does the cryptography of TLS |
//! | `compression` | no | `Builder::compression`: bodies may arrive in br and gzip |
//! | `json` | no | [`Response::json`] |
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
//! - A new connection after a 421: the retry uses any connection of the pool.

mod base;
mod body;
mod builder;
mod call;
mod client;
mod compression;
mod error;
mod layer;
mod limiters;
mod proxy;
mod request;
mod response;
mod status;
mod tls;
mod tracker;
mod translate;
mod transport;

pub mod layers {
    //! The layers, for a custom stack, and the adapters that join them.
    //!
    //! Each layer works alone. Two adapters join them: with [`ReadError`] the token layer and the
    //! limits read typed errors, and [`into_error`] converts the errors of these two for the retry
    //! layer. Without them the stack does not compile. One wrong order compiles: a token layer
    //! outside of retry, where each attempt has the token of the first.
    //!
    //! ```
    //! use bytes::Bytes;
    //! use http_body_util::Full;
    //! use hyper_util::{client::legacy::{Client, connect::HttpConnector}, rt::TokioExecutor};
    //! use tower::{Layer, Service, ServiceBuilder};
    //! use tower_tds::layers::{
    //!     ReadError,
    //!     errors::{ClassifyLayer, RetryLayer},
    //!     into_error,
    //!     limits::{ConnectionLimitLayer, Limiter, Limits, RequestLimitLayer},
    //!     token::{BearerAuthLayer, Credentials, Origin, TokenEndpoint, TokenSource},
    //! };
    //!
    //! # fn main() -> Result<(), Box<dyn std::error::Error>> {
    //! let limiter = Limiter::new(Limits::default());
    //! let connector = HttpConnector::new(); // TLS is made above the limit: put yours around it
    //! let connector = ConnectionLimitLayer::new(limiter.clone()).layer(connector);
    //! let http = Client::builder(TokioExecutor::new()).build(connector);
    //!
    //! let endpoint = TokenEndpoint::keycloak("https://auth.example.org", "ServiceConnect")?;
    //! let first = RequestLimitLayer::new(limiter.first_in_line()); // token calls are counted, too
    //! let credentials = Credentials::new("my-client-id", "s3cr3t")?;
    //! let tokens = TokenSource::builder(endpoint, credentials).build(first.layer(http.clone()));
    //! let origin = Origin::from_uri(&"https://data.example.org".parse()?)?;
    //! let stack = ServiceBuilder::new()
    //!     .layer(RetryLayer::new())
    //!     .map_err(into_error)
    //!     .layer(RequestLimitLayer::new(limiter).feedback(ReadError).detached())
    //!     .layer(BearerAuthLayer::new(tokens, [origin]).judge(ReadError))
    //!     .layer(ClassifyLayer::new())
    //!     .service(http);
    //!
    //! // Shows the missing bound in its compile error. A call would only show that there is no `call`.
    //! fn check<S: Service<http::Request<Full<Bytes>>>>(stack: S) -> S {
    //!     stack
    //! }
    //! # drop(check(stack));
    //! # Ok(())
    //! # }
    //! ```

    pub use {tower_oidc_cc as token, tower_tds_errors as errors, tower_tds_limits as limits};

    pub use crate::translate::{IntoErrorFuture, ReadError, into_error};
}

pub use tower_oidc_cc::{Credentials, Provider};
pub use tower_tds_errors::{Error, Kind};
pub use tower_tds_limits::{Limiter, Limits, Proof, Quota};

pub use self::{
    body::ResponseBody,
    builder::Builder,
    call::Call,
    client::{Client, Deadline, ResponseFuture},
    error::BuildError,
    layer::TdsLayer,
    limiters::SharedLimits,
    request::RequestBody,
    response::Response,
    status::Status,
    translate::IntoError,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../COOKBOOK.md")]
struct Cookbook;
