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
//! | `claims` | no | a missing role names the realm roles that the token does carry (read, not verified) |
//! | `compression` | no | token replies that a proxy compressed unasked, with gzip or br, decode |
//! | `file-store` | no | `store::File`: one token for programs that start often |
//! | `private-key-jwt` | no | client authentication by a signed statement: `Assertion`, `Credentials::private_key_jwt`; aws-lc-rs signs |
//! | `private-key-jwt-rust-crypto` | no | the same, in pure Rust; its `rsa` leaks timing (RUSTSEC-2023-0071, no fix yet) |
//!
//! # Guarantees
//!
//! - **One request.** Any number of callers without a token make one token request. It belongs to
//!   none of them: dropping a caller never cancels it.
//! - **No worse than the token.** While a token is valid, nothing that the token endpoint does
//!   changes the result of a call or makes it wait.
//! - **A token that dies early costs nothing.** One that was accepted and is then refused is
//!   replaced at once, as often as that happens, and from the third time on mostly before it does. A
//!   refused token stays in use until its successor is there. A service that refuses all tokens, a
//!   place of it, or one that says yes and no, sees at most 16 of them in an hour. No other call is
//!   worse for it, but that a death beside such a place is mended within five minutes, and not at
//!   once, where no call goes to a place again that had accepted the token.
//! - **No end state.** After any sequence of errors a healthy endpoint yields a token within one
//!   backoff: half a minute, two after refused credentials, or what a `Retry-After` said, five at
//!   most. Credentials that have changed are tried within a second, three times in ten minutes.
//! - **Fail closed.** No token that has expired and no request without one is sent; a token goes to
//!   the listed origins alone, over https unless you say loopback; a redirect of the token request is an error. Each call
//!   looks at the wall clock, and the task at both.
//! - **Silence.** No secret and no token is in any `Debug`, error, event or panic of ours. Their
//!   memory is wiped when the last that holds them is dropped; what others copy is theirs to wipe.
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
//! - Sending a request more than twice is for a retry layer outside.
//! - Grants with a user, and refresh tokens.
//! - Deciding anything by what is in a token: to a client it is opaque (RFC 9068, section 6). Only
//!   its life can be shortened by its `exp`.
//! - Other runtimes than tokio: its tasks, timers and clock are used as they are.

#[cfg(feature = "_assertion")]
pub use self::assertion::Assertion;
pub use self::{
    credentials::Credentials,
    endpoint::TokenEndpoint,
    error::{ConfigError, Error, TokenError},
    health::Health,
    judge::{Challenge, HeadAlone, Judge, Judgement},
    origin::{Foreign, Origin},
    parameters::Parameters,
    provider::Provider,
    rejection::Rejection,
    replay::{BearerReplay, BearerReplayLayer},
    service::{BearerAuth, BearerAuthLayer},
    source::{AccessToken, TokenSource, TokenSourceBuilder},
    state::RefreshPolicy,
    store::{StoredToken, TokenStore},
};

#[cfg(feature = "_assertion")]
mod assertion;
mod claims;
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
mod replay;
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
