//! A Tower layer that puts an OIDC client-credentials bearer token on each request.
//!
//! ```text
//! request ---> BearerAuth -------------------------------> your HTTP client ---> service
//!                |  poll_ready: a valid token first,             ^
//!                |              then the service below           |
//!                |  call:       one load, one header             |
//!              TokenSource (shared) <--- one flight ------> token endpoint
//!                                        first token, renewal, successor of a refused token
//! ```
//!
//! [`BearerAuthLayer`] wraps any `Service<http::Request<_>>`. [`TokenSource`] keeps the token for
//! layers, clones, start-up probes and programs without a layer.
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
//! Put `BearerAuthLayer` inside of a retry layer, so that each attempt sends the current token.
//! Without a layer, [`TokenSource::token`] returns the token.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `file-store` | no | `FileStore`: one token for programs that start often |
//! | `private-key-jwt` | no | client authentication by a signed statement: `Assertion`, `Credentials::private_key_jwt`; aws-lc-rs signs |
//!
//! # Guarantees
//!
//! - **One request.** Any number of callers without a token share one token request. Dropping a
//!   caller never cancels it.
//! - **Outages.** While a token is valid, no fault of the token endpoint fails a call. A token that
//!   the service has refused delays other calls by one second at most.
//! - **Refused tokens.** A token that dies early is replaced after any 401 that names no missing
//!   role or header. The refused call is held until then, so that a retry layer outside sends it
//!   again with the new token. Refusals cause 16 token requests an hour at most.
//! - **No end state.** After any errors, a healthy endpoint gives a token within one backoff: at
//!   most 30 s, or two minutes if the credentials were refused, or the `Retry-After` up to five
//!   minutes.
//! - **Fail closed.** No request is sent without a token, and none with a token that had expired when
//!   the service became ready. A token goes only to the listed origins. Plain http is allowed only
//!   to loopback addresses. A redirect of the token request is an error.
//! - **Silence.** No secret and no token is in any `Debug`, error, event or panic of this crate.
//!
//! # Errors
//!
//! [`Error`] lists the errors with the next step for each, [`TokenSource`] the load on the token
//! endpoint, [`TokenEndpoint`] the replies that are read. [`TokenSource::health`] returns the
//! condition of the token. Changes are logged by `tracing` at info or warn, each once.
//!
//! # Non-goals
//!
//! - A resend of refused requests: a retry layer outside does that.
//! - One source for several runtimes. Its task runs on the runtime of its first use. If that
//!   runtime ends, the next use spawns another task. A token request that was interrupted by the
//!   end may fail.
//! - A machine that is suspended between the readiness of a service and its call. That call may
//!   send an expired token; the refusal causes a request of a new one.
//! - Tokens that die more often than every five minutes.
//! - Grants with a user, and refresh tokens.
//! - The content of tokens: they are opaque to a client (RFC 9068, section 6).
//! - Compressed token replies, secrets from a pipe, and runtimes other than tokio.

#[cfg(feature = "private-key-jwt")]
pub use self::assertion::Assertion;
#[cfg(feature = "file-store")]
pub use self::store::file::FileStore;
pub use self::{
    credentials::{Credentials, Provider},
    endpoint::TokenEndpoint,
    error::{ConfigError, Error, TokenError},
    health::Health,
    judge::{Challenge, Judge, Judgement, Rejection},
    origin::Origin,
    reply::AccessToken,
    service::{BearerAuth, BearerAuthLayer},
    source::{TokenSource, TokenSourceBuilder},
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
mod reply;
mod request;
mod service;
mod source;
mod state;
mod store;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
