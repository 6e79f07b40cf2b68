//! The layers, for a custom stack, and the adapters that join them.
//!
//! Each layer works alone. Two adapters join the three: with [`ReadError`] the token layer and the
//! limits read typed errors, and [`into_error`] converts the layers' errors for the retry layer.
//! Without them the stack does not compile: the compiler's note names the missing line, or the
//! layer with a wrong neighbour. One wrong order compiles: a token layer outside of retry, where
//! each attempt has the token of the first.
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

pub use crate::translate::{ReadError, into_error};
