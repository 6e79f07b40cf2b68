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
//!   replaced at once, as often as that happens, and from the third time on before it does. A refused
//!   token stays in use until its successor is there. A service that refuses all tokens, or a place
//!   of it, sees at most 16 of them in an hour, and no other call is worse for it.
//! - **No end state.** After any sequence of errors a healthy endpoint yields a token within one
//!   backoff, two minutes after refused credentials, or within a second of their being changed.
//! - **Fail closed.** No token that has expired and no request without one is sent; a token goes to
//!   the listed origins alone, over https; a redirect of the token request is an error. Each call
//!   looks at the wall clock, and the task at both.
//! - **Silence.** No secret and no token is in any `Debug`, error, event or panic of ours. Their
//!   memory is wiped when the last that holds them is dropped; what others copy is theirs to wipe.
//!
//! # Load
//!
//! What the token endpoint sees of one handle, for tokens of 24 hours.
//!
//! | what happens | token requests |
//! |---|---|
//! | a day under [`RefreshPolicy::Ahead`], the default; under [`RefreshPolicy::OnExpiry`] | 2 |
//! | a day under [`RefreshPolicy::Interval`] of 4 hours, of 6 | 7, 5 at most |
//! | a thousand calls at once with no token, or with a token that is refused | 1 |
//! | a day of any number of processes that share a [`TokenStore`] | 2 |
//! | the endpoint is down for an hour, under load | 240 in the mean, at growing distances |
//! | the credentials are wrong | 1 in one to two minutes |
//! | the service refuses all tokens, for an hour | 16 at most: at 0, 0, 1, 3, 7, 12, 17, ... min |
//! | calls are refused without a reason, or for a missing role | 1 an hour |
//! | the gateway's own identity check fails | 0 |
//! | tokens that work die early | 1 for each death, and then 1 for each life |
//! | anything else, and all of these together | the [`TokenBudget`]: 240 an hour unless you say otherwise |
//!
//! # Replies
//!
//! | what the endpoint sends | what is made of it |
//! |---|---|
//! | a byte-order mark before the object | stepped over |
//! | `expires_in` as `60`, `60.0`, `"60"`, `"60.0"` | 60 seconds; fractions are cut off |
//! | `expires_in` absent or null | [`TokenSourceBuilder::default_lifetime`] |
//! | a member twice | the last one counts |
//! | `error` false, null or no text, beside a token | ignored |
//! | unknown members, `refresh_token` | ignored |
//! | `token_type` in any case of letters; another type than Bearer | taken; refused |
//! | HTML, a list, a torn or empty body, more than 64 KiB | transient: tried again |
//!
//! # Errors
//!
//! | what you see | what it asks of you |
//! |---|---|
//! | [`TokenError::is_transient`] | nothing was sent: call again after [`TokenError::retry_after`] |
//! | [`TokenError::is_rejected`] | correct the client id, the secret or the client's settings; a [`Provider`] that yields others is heard within a second |
//! | [`TokenError::is_missing_credentials`] | set right the file, the variable or the vault that its text names |
//! | [`TokenError::is_over_budget`] | wait; find out what spends the requests; allow more |
//! | [`TokenError::is_timeout`] | as transient; allow more by [`TokenSourceBuilder::timeout`] or [`readiness`](TokenSourceBuilder::readiness) |
//! | [`TokenError::is_foreign_origin`] | list the origin, choose [`Foreign::Pass`], or see [`BearerAuthLayer::for_origin`] |
//! | [`Error::Inner`] | it is your HTTP client's own |
//! | a 401 with [`Judgement::DeadToken`] | call again if [`Rejection::is_replaced`], or let [`BearerAuthLayer::replay`] do so |
//! | a 401 or 403 with [`Judgement::MissingRole`] | ask an administrator for the role; no retry can help |
//! | a 401 with [`Judgement::NoHeader`] | look for a layer below, a redirect or a proxy that drops the header |
//! | a 401 with [`Judgement::Unexplained`], or without a [`Rejection`] | treat it as an outage |
//!
//! What happens is told to `tracing`: each change of state once, at info or warn.
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
    judge::{Challenge, Judge, Judgement},
    layer::BearerAuthLayer,
    origin::{Foreign, Origin},
    parameters::Parameters,
    provider::Provider,
    rejection::Rejection,
    replay::{BearerReplay, BearerReplayLayer},
    service::BearerAuth,
    source::{AccessToken, TokenSource, TokenSourceBuilder},
    state::{RefreshPolicy, TokenBudget},
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
mod layer;
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
