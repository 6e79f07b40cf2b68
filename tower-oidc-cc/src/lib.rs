//! Puts an OIDC client-credentials bearer token on each request, as a Tower layer.
//!
//! ```text
//! request ---> Token ------------------------------------> your HTTP client ---> service
//!                |  poll_ready: a valid token first,             ^
//!                |              then the service below           |
//!                |  call:       one load, one header             |
//!              Tokens (shared) <--- driver (one task) ----> token endpoint
//!                                   fetches, renews at 80 % of life, expires
//! ```
//!
//! [`TokenLayer`] wraps any `Service<http::Request<_>>`. [`Tokens`] keeps the token; layers, clones
//! and start-up probes share one.
//!
//! ```
//! use bytes::Bytes;
//! use http::{Request, Response, Uri};
//! use http_body_util::Full;
//! use tower::{Layer, ServiceExt};
//! use tower_oidc_cc::{Credentials, Origin, TokenEndpoint, TokenLayer, Tokens};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let http_client = tower::service_fn(|request: Request<Full<Bytes>>| async move {
//! #     Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(
//! #         match request.headers().get("authorization") {
//! #             None => r#"{"access_token":"abc","token_type":"Bearer","expires_in":86400}"#,
//! #             Some(token) if token == "Bearer abc" => "welcome",
//! #             Some(_) => "go away",
//! #         },
//! #     ))))
//! # });
//! let base_uri = Uri::from_static("https://api.example.com");
//! let credentials = Credentials::new("my-client", "my-secret")?;
//! let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "ServiceConnect")?;
//!
//! let tokens = Tokens::builder(endpoint, credentials).build(http_client.clone());
//! let layer = TokenLayer::new(tokens, [Origin::from_uri(&base_uri)?]);
//! let service = layer.layer(http_client);
//!
//! let request = Request::get("https://api.example.com/data").body(Full::default())?;
//! let response = service.oneshot(request).await?;
//! # assert_eq!(http_body_util::BodyExt::collect(response.into_body()).await?.to_bytes(), "welcome");
//! # Ok(())
//! # }
//! ```
//!
//! Put it inside what retries, so that each attempt takes the token of its moment, and outside
//! what limits, so that no permit is held while a token is fetched.
//!
//! # Guarantees
//!
//! - **One request.** Any number of callers without a token make one token request. It belongs to
//!   none of them: dropping a caller never cancels it.
//! - **No worse than the token.** While a token is valid, nothing that the token endpoint does
//!   changes the result of a call or makes it wait. After a failure the endpoint is left alone for
//!   a while, longer for refused credentials, and callers get the last error at once.
//! - **No end state.** After any sequence of errors a healthy endpoint yields a token within one
//!   backoff, or two minutes after refused credentials; five if the server itself asks for that.
//!   A runtime that is shut down takes its task with it, and the next call starts another.
//! - **Fail closed.** No expired token and no request without a token is sent; a token goes to the
//!   listed origins alone, over https; a redirect of the token request is an error.
//! - **Refusals are aimed.** A 401 that says that the token is dead drops that token and no later
//!   one, at a growing distance: ten minutes of constant refusal cost three token requests.
//! - **Silence.** No secret and no token is in any `Debug`, error or event.
//!
//! # Load
//!
//! A token of 24 h costs one request at the start and one each 17 to 19 hours, at a random moment
//! in that window.
//!
//! # Non-goals
//!
//! - Sending a refused request again is for the retry layer outside.
//! - Grants with a user, and refresh tokens.
//! - Reading the token: to a client it is opaque (RFC 9068, section 6).
//! - Expiry on a runtime that is not driven: an expired token is then found by its 401.

pub use self::{
    budget::Budget,
    credentials::Credentials,
    endpoint::TokenEndpoint,
    error::{ConfigError, Error, TokenError},
    event::{Event, Reason},
    finding::Finding,
    health::Health,
    judge::{Challenge, Judge, Judgement},
    layer::TokenLayer,
    origin::Origin,
    policy::Policy,
    provider::Provider,
    replay::{Replay, ReplayLayer},
    rules::{Existing, Foreign},
    service::Token,
    tokens::{Tokens, TokensBuilder},
};

mod backoff;
mod budget;
#[cfg(feature = "claims")]
mod claims;
mod clock;
mod credentials;
mod endpoint;
mod error;
mod event;
mod finding;
pub mod future;
mod gap;
mod health;
mod judge;
mod layer;
mod lifetime;
mod moment;
mod origin;
mod policy;
mod provider;
mod replay;
mod rules;
mod service;
mod tokens;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
