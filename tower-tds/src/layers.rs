//! The layers, for a stack of one's own, and what joins them.
//!
//! Each layer works alone and knows no other. Two things join the three: [`ReadError`] tells the
//! token layer and the limits what a typed error says, and [`into_error`] makes one error type of
//! theirs for the retry layer. Without them the stack does not compile, and neither does it in another
//! order than this: the compiler's note names the line that is missing, or the layer whose neighbour is
//! wrong. Only limits outside of a retry layer compile; a debug assertion finds them.
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
//!     limits::{
//!         ConnectionLimitLayer, DetachLayer, Limiter, Limits, RequestLimitLayer,
//!     },
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
//!     .layer(BearerAuthLayer::new(tokens, [origin]).judge(ReadError))
//!     .layer(DetachLayer)
//!     .layer(RequestLimitLayer::new(limiter).feedback(ReadError))
//!     .layer(ClassifyLayer::new())
//!     .service(http);
//!
//! // Says what is missing, where a call would only say that there is no `call`.
//! fn check<S: Service<http::Request<Full<Bytes>>>>(stack: S) -> S {
//!     stack
//! }
//! # drop(check(stack));
//! # Ok(())
//! # }
//! ```

pub use {tower_oidc_cc as token, tower_tds_errors as errors, tower_tds_limits as limits};

pub use crate::translate::{ReadError, into_error};
