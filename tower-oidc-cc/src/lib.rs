//! Puts an OIDC client-credentials bearer token on each request, as a Tower layer.
//!
//! ```text
//! request ---> Token ------------------------------------> your HTTP client ---> service
//!                |  poll_ready: a valid token first,             ^
//!                |              then the service below           |
//!                |  call:       one load, one header             |
//!              Tokens (shared) <--- driver (one task) ----> token endpoint
//!                                   fetches, renews ahead of expiry, expires
//! ```
//!
//! [`BearerAuthLayer`] wraps any `Service<http::Request<_>>`. [`TokenSource`] keeps the token; layers, clones
//! and start-up probes share one.
//!
//! ```
//! use bytes::Bytes;
//! use http::{Request, Response, Uri};
//! use http_body_util::Full;
//! use tower::{Layer, ServiceExt};
//! use tower_oidc_cc::{Credentials, Origin, TokenEndpoint, BearerAuthLayer, TokenSource};
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
//! let tokens = TokenSource::builder(endpoint, credentials).build(http_client.clone());
//! let layer = BearerAuthLayer::new(tokens, [Origin::from_uri(&base_uri)?]);
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
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `claims` | no | a missing role names the realm roles that the token does carry (read, not verified) |
//! | `compression` | no | token replies that a proxy compressed unasked, with gzip or br, decode |
//! | `private-key-jwt` | no | client authentication by a signed statement: `Assertion`, `Credentials::private_key_jwt` |
//!
//! # Guarantees
//!
//! - **One request.** Any number of callers without a token make one token request. It belongs to
//!   none of them: dropping a caller never cancels it.
//! - **No worse than the token.** While a token is valid, nothing that the token endpoint does
//!   changes the result of a call or makes it wait. After a failure the endpoint is left alone for
//!   a while, longer for refused credentials, and callers get the last error at once.
//! - **No end state.** After any sequence of errors a healthy endpoint yields a token within one
//!   backoff, or two minutes after refused credentials, or within a second of their being changed;
//!   five minutes if the server itself asks for that, and more only if a [`TokenBudget`] is spent.
//!   A runtime that is shut down takes its task with it, and the next call starts another.
//! - **Fail closed.** No token that has expired and no request without one is sent (on a machine
//!   that was suspended or whose clock was set, from five seconds later on); a token goes to the
//!   listed origins alone, over https; a redirect of the token request is an error.
//! - **Two clocks.** A token ends when the steady clock or the wall clock says so, whichever is
//!   first: a suspended machine and a clock that is set are noticed within five seconds.
//! - **Refusals are aimed.** A 401 that says that the token is dead drops that token and no later
//!   one, at a growing distance: at once, a minute later, ten, then an hour, until an hour's calm.
//!   Real revocations closer than that wait, too: that a token worked in between leaves no trace.
//!   Each refusal is told as what it is: a [`Rejection`].
//! - **Silence.** No secret and no token is in any `Debug`, error, event or panic of ours. Their
//!   memory is wiped when the last that holds them is dropped. What others copy is theirs to wipe:
//!   the buffers of the HTTP client and of a decompressor, the arithmetic of what signs, the
//!   environment.
//!
//! # Load
//!
//! What the token endpoint sees of one handle, for tokens of 24 hours. Each line has its test, by
//! the endpoint's own count.
//!
//! | what happens | token requests |
//! |---|---|
//! | a day under [`RefreshPolicy::Ahead`], the default | 2 |
//! | a day under [`RefreshPolicy::Interval`], 4 hours | 7 at most |
//! | a day under [`RefreshPolicy::Interval`], 6 hours | 5 at most |
//! | a day under [`RefreshPolicy::OnExpiry`] | 2 at most |
//! | a thousand calls at once with no token, or with a token that is found dead | 1 |
//! | a day of any number of processes that share a [`TokenStore`] | 2 |
//! | a thousand processes started at once | renewals spread over 2.4 hours |
//! | the endpoint is down for an hour, under load | 240 in the mean, at growing distances |
//! | the credentials are wrong | 1 in one to two minutes, for each key |
//! | the service finds every token dead, for ten minutes | 3 |
//! | the tokens lack a role, for a day | 24 at most |
//! | the gateway's own identity check fails | 0 |
//! | tokens that live less than a minute | 3 in two lives, and 3,600 an hour at most |
//! | anything else, and all of these together | the [`TokenBudget`]: 240 an hour unless you say otherwise |
//!
//! # Errors
//!
//! | what you see | what it asks of you |
//! |---|---|
//! | [`TokenError::is_transient`] | nothing was sent: call again after [`TokenError::retry_after`] |
//! | [`TokenError::is_rejected`] | correct the client id, the secret or the client's settings; a [`Provider`] that yields others is heard within a second |
//! | [`TokenError::is_missing_credentials`] | see its source: the file, the variable or the vault |
//! | [`TokenError::is_over_budget`] | wait; find out what spends the requests, by [`Event`]s; allow more |
//! | [`TokenError::is_timeout`] | as transient; allow more by [`TokenSourceBuilder::timeout`] or [`readiness`](TokenSourceBuilder::readiness), as its text says, if it is the rule |
//! | [`TokenError::is_foreign_origin`] | list the origin, or choose [`Foreign::Pass`] |
//! | [`TokenError::is_already_authorized`] | leave the header to this layer |
//! | any other [`Error::Token`] | its text says what to set right |
//! | [`Error::Inner`] | it is your HTTP client's own |
//! | a 401 with [`Judgement::DeadToken`] | call again if [`Rejection::is_replaced`], or let [`BearerAuthLayer::replay`] do so |
//! | a 401 or 403 with [`Judgement::MissingRole`] | ask an administrator for the role; no retry can help |
//! | a 401 with [`Judgement::NoHeader`] | look for a layer below, a redirect or a proxy that drops the header |
//! | any other 401 | the gateway does not say, or its identity check fails: treat it as an outage |
//!
//! # Non-goals
//!
//! - Sending a request more than twice is for a retry layer outside.
//! - Grants with a user, and refresh tokens.
//! - Deciding anything by what is in a token: to a client it is opaque (RFC 9068, section 6). Only
//!   its life can be shortened by its `exp`, where that is asked for (feature `claims`).
//! - Other runtimes than tokio: its tasks, timers and clock are used as they are.
//! - Expiry on a runtime that is kept but not driven: an expired token is then found by its 401.

#[cfg(feature = "private-key-jwt")]
pub use self::assertion::Assertion;
pub use self::{
    credentials::Credentials,
    endpoint::TokenEndpoint,
    error::{ConfigError, Error, TokenError},
    health::Health,
    judge::{Challenge, Judge, Judgement},
    layer::BearerAuthLayer,
    origin::{Existing, Foreign, Origin},
    parameters::Parameters,
    provider::Provider,
    rejection::Rejection,
    replay::{BearerReplay, BearerReplayLayer},
    service::BearerAuth,
    source::{AccessToken, TokenSource, TokenSourceBuilder},
    state::{RefreshPolicy, TokenBudget},
    store::{StoredToken, TokenStore},
};

#[cfg(feature = "private-key-jwt")]
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
