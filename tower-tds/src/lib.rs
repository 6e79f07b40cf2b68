//! A client for a public transport data service, over hyper and rustls.
//!
//! ```text
//! request -> Retry -> RequestLimit -> BearerAuth -> Classify -> pool -> TLS -> ConnectionLimit -> TCP
//! ```
//!
//! [`Client`] is a [`tower_service::Service`]. It keeps a valid token and stays within the service's limits on any
//! network. For services that count in windows or with counters this is proven. For a service with a leaky bucket it
//! rests on measurements, unless you set the burst of the bucket: see [`Limits`]. You get a success, or one typed error with the next step. The layers of a client come from
//! [`tower_oidc_cc`], [`tower_tds_limits`] and [`tower_tds_errors`], which also work alone; this crate puts them in
//! order.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! // TDS_AUTH_URL, TDS_BASE_URL, TDS_CLIENT_ID and TDS_CLIENT_SECRET; or `Client::builder`.
//! let client = tower_tds::Builder::from_env()?.build()?;
//! let bus = client.get("/v1/live/bus").await?.text().await?;
//! println!("{bus}");
//! # Ok(())
//! # }
//! ```
//!
//! The path that you give is appended to the base URL, and [`Call::query`] encodes parameters. Use [`Client::request`]
//! for any other request with any [`RequestBody`]. Read a [`Response`] as bytes, text or JSON, or in chunks.
//! [`Call::deadline`] sets the deadline of one call and its body, and [`Builder::deadline`] that of all calls. For unit
//! tests, [`Client::from_service`] creates a client without sockets.
//!
//! # Guarantees
//! - One token request serves all clones. Renewal comes before the token expires, and delays no
//!   call.
//! - The service counts at most 50 requests in any second and 60 open sockets, including retries,
//!   token calls and all clients of the same [`Limiter`]. For the proof, see the front page of
//!   [`tower_tds_limits`].
//! - If you have a response, it is a success (2xx or 304); any other outcome is an [`Error`]. When
//!   a body ends early or stalls, you get an error with the bytes received and expected.
//!
//! # Features
//! | feature | default | adds |
//! |---|---|---|
//! | `ring` | yes | ring does the cryptography of TLS |
//! | `aws-lc-rs` | no | aws-lc does the cryptography of TLS |
//! | `charset` | no | [`Response::text`] reads other charsets than UTF-8 |
//! | `compression` | no | `Builder::compression`: bodies may arrive in br and gzip |
//! | `json` | no | [`Response::json`] |
//! | `rustls-0-23` | no | [`Builder::tls`], with a configuration of rustls 0.23 |
//! | `metrics` | no | counters of calls, attempts and waits for the `metrics` facade, and `Status::record` for the gauges |
//!
//! [`TdsLayer`] puts the same stack around another HTTP client. [`layers`] has the parts for a
//! custom stack.
//!
//! # Non-goals
//! - A mode without certificate checks.
//! - Types for the service's data: you define paths, queries and payloads.
//! - Proxies of the environment by default: see [`Builder::proxy`] and [`Builder::env_proxies`].
//! - HTTP/2 and `traceparent` in [`Client`]: `COOKBOOK.md` has a recipe for each. To put the layers around reqwest, see
//!   the example `reqwest_below` of the repository.
//! - The length of a body that ends with its connection over plain HTTP, where it may be cut unseen. Over TLS
//!   the end has to be announced by a `close_notify`.
//! - A new connection after a 421: the pool may give the retry the same one.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod client;
mod error;
mod stack;
mod testing;

mod http {
    //! HTTP over hyper and rustls: sockets, TLS, proxies and content codings.

    pub(crate) mod addresses;
    #[cfg(feature = "compression")]
    pub(crate) mod compression;
    pub(crate) mod connection;
    pub(crate) mod http1;
    pub(crate) mod pool;
    pub(crate) mod proxy;
    pub(crate) mod tls;
    pub(crate) mod transport;
}

pub mod layers {
    //! Parts for a stack of your own: the layers, which need nothing between them.
    //!
    //! Each layer works alone. In one stack, each reads the [`Cause`](outcome::Cause) that the error of another carries,
    //! so any order compiles.
    //!
    //! Not every order is right. If you put the token layer outside the retry layer, each attempt
    //! sends the token of the first. If you put the limits outside it, retries take no permit.
    //!
    //! ```
    //! use bytes::Bytes;
    //! use http_body_util::Full;
    //! use hyper_util::{client::legacy::{Client, connect::HttpConnector}, rt::TokioExecutor};
    //! use tower::{Layer, Service, ServiceBuilder};
    //! use tower_tds::layers::{
    //!     errors::{ClassifyLayer, RetryLayer},
    //!     limits::{ConnectionLimitLayer, Limiter, Limits, RequestLimitLayer},
    //!     token::{BearerAuthLayer, Credentials, Origin, TokenEndpoint, TokenSource},
    //! };
    //!
    //! # fn main() -> Result<(), Box<dyn std::error::Error>> {
    //! let limiter = Limiter::new(Limits::default());
    //! let mut tcp = HttpConnector::new(); // put TLS around the limited connector, not inside it
    //! // Otherwise the kernel resends abandoned requests once the network is back.
    //! #[cfg(target_os = "linux")]
    //! tcp.set_tcp_user_timeout(Some(limiter.limits().tcp_user_timeout()));
    //! let connector = ConnectionLimitLayer::new(limiter.clone()).layer(tcp);
    //! let http = Client::builder(TokioExecutor::new()).build(connector);
    //!
    //! let endpoint = TokenEndpoint::keycloak("https://auth.example.org", "ServiceConnect")?;
    //! let first = RequestLimitLayer::new(limiter.first_in_line()); // token calls are counted, too
    //! let credentials = Credentials::new("my-client-id", "s3cr3t")?;
    //! let tokens = TokenSource::builder(endpoint, credentials).build(first.layer(http.clone()));
    //! let origin = Origin::from_uri(&"https://data.example.org".parse()?)?;
    //! let stack = ServiceBuilder::new()
    //!     .layer(RetryLayer::new())
    //!     .layer(RequestLimitLayer::new(limiter))
    //!     .layer(BearerAuthLayer::new(tokens, [origin]))
    //!     .layer(ClassifyLayer::new())
    //!     .service(http);
    //!
    //! # fn check<S: Service<http::Request<Full<Bytes>>>>(stack: S) -> S {
    //! #     stack
    //! # }
    //! # drop(check(stack));
    //! # Ok(())
    //! # }
    //! ```

    pub use {
        tower_oidc_cc as token, tower_tds_errors as errors, tower_tds_limits as limits,
        tower_tds_outcome as outcome,
    };
}

pub use tower_oidc_cc::{Credentials, CredentialsProvider};
pub use tower_tds_errors::{Error, Kind};
pub use tower_tds_limits::{Limiter, Limits, Proof, Quota};

pub use self::{
    builder::{AuthServer, Builder},
    client::{
        Client, body::ResponseBody, call::Call, request::RequestBody, response::Response,
        status::Status,
    },
    error::BuildError,
    stack::{Named, TdsLayer},
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../COOKBOOK.md")]
struct Cookbook;
