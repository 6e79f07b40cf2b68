//! Puts an OIDC client-credentials bearer token on each request, as a Tower layer, or hands it out.
//!
//! ```text
//! request ---> BearerAuth -------------------------------> your HTTP client ---> service
//!                |  poll_ready: a valid token first,             ^
//!                |              then the service below           |
//!                |  call:       one load, one header             |
//!              TokenSource (shared) <--- one task --------> token endpoint
//!                                        fetches, renews ahead of expiry, replaces what is refused
//! ```
//!
//! [`BearerAuthLayer`] wraps any `Service<http::Request<_>>`. [`TokenSource`] keeps the token; layers,
//! clones, start-up probes and programs of another kind share one.
//!
//! ```
//! use bytes::Bytes;
//! use http::{Request, Response, Uri};
//! use http_body_util::Full;
//! use tower::{Layer, ServiceExt};
//! use tower_oidc_cc::{BearerAuthLayer, Credentials, Origin, TokenEndpoint, TokenSource};
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
//! let source = TokenSource::builder(endpoint, credentials).build(http_client.clone());
//! let layer = BearerAuthLayer::new(source, [Origin::from_uri(&base_uri)?]);
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
//! what limits, so that no permit is held while a token is fetched. Where there is no layer to put
//! it on, [`TokenSource::token`] gives the token.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `file-store` | no | `store::File`: one token for programs that start often |
//! | `private-key-jwt` | no | client authentication by a signed statement: `Assertion`, `Credentials::private_key_jwt`; aws-lc-rs signs |
//!
//! # Guarantees
//!
//! - **One request.** Any number of callers without a token make one token request. It belongs to
//!   none of them: dropping a caller never cancels it.
//! - **No worse than the token.** While a token is valid, nothing that the token endpoint does
//!   changes the result of a call or makes it wait.
//! - **A token that dies early is replaced at once.** A token that was accepted and is then refused
//!   has a successor asked for at once. The refused call fails, and so do calls in flight, unless a
//!   retry layer outside sends them again. The refused token stays in use until its successor is
//!   there. A service that refuses all tokens, or one path of it, causes at most 16 token requests
//!   an hour. A death beside such a path is mended within five minutes.
//! - **No end state.** After any sequence of errors a healthy endpoint yields a token within one
//!   backoff: half a minute, two after refused credentials, or what a `Retry-After` said, five at
//!   most. The next token request uses the credentials of its moment.
//! - **Fail closed.** No expired token is sent, and no request without a token. A token goes to the
//!   listed origins alone. Plain http is for this machine alone. A redirect of the token request is
//!   an error. Each call looks at the wall clock, and the task at both clocks.
//! - **Silence.** No secret and no token is in any `Debug`, error, event or panic of this crate. Their
//!   memory is wiped when its last holder is dropped; copies made elsewhere are not.
//!
//! # Errors
//!
//! [`Error`] lists what you may see and what it asks of you, [`TokenSource`] what the token endpoint
//! sees of you, [`TokenEndpoint`] how its replies are read.
//! What happens is told to `tracing`: each change of state once, at info or warn; a failure that
//! lasts, once a minute.
//! [`TokenSource::health`] says how it is.
//!
//! # Non-goals
//!
//! - Sending a refused request again. A retry layer outside does that.
//! - Several runtimes for one source. Its task runs on the runtime of its first use. When that runtime
//!   ends, the next use starts another; while it is kept and not driven, a wait ends with an error.
//! - Grants with a user, and refresh tokens.
//! - Reading tokens: to a client they are opaque (RFC 9068, section 6).
//! - Compressed token replies. No request asks for one.
//! - Secrets from a pipe. A secret file is a regular file.
//! - Other runtimes than tokio: its tasks, timers and clock are used as they are.

#[cfg(feature = "private-key-jwt")]
pub use self::assertion::Assertion;
pub use self::{
    credentials::Credentials,
    endpoint::TokenEndpoint,
    error::{ConfigError, Error, TokenError},
    health::Health,
    judge::{Challenge, HeadAlone, Judge, Judgement},
    origin::Origin,
    parameters::Parameters,
    provider::Provider,
    rejection::Rejection,
    service::{BearerAuth, BearerAuthLayer},
    source::{AccessToken, TokenSource, TokenSourceBuilder},
    state::RefreshPolicy,
    store::{StoredToken, TokenStore},
};

#[cfg(feature = "private-key-jwt")]
mod assertion;
mod clock;
mod credentials;
mod endpoint;
mod error;
pub mod future;
mod health;
mod judge;
mod origin;
mod parameters;
mod provider;
mod rejection;
mod reply;
mod request;
mod service;
mod source;
mod state;
pub mod store;
mod wiped;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Terms, who owns what, and the obligations that tests carry in their names.
#[cfg(doc)]
#[doc = include_str!("../DESIGN.md")]
pub mod _design {}
