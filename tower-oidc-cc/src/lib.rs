//! A Tower layer that puts an OIDC client-credentials bearer token on each request.
//!
//! ```text
//! request ---> BearerAuth -------------------------------> your HTTP client ---> service
//!                |  poll_ready: a valid token first,             ^
//!                |              then the service below           |
//!                |  call:       adds the header                   |
//!              TokenSource (shared) <--- token request ----> token endpoint
//!                                        first token, renewal, replacement of a refused token
//! ```
//!
//! [`BearerAuthLayer`] wraps any `Service<http::Request<_>>`. It takes the token from a
//! [`TokenSource`], which you share with other layers, clones and start-up probes.
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
//! For your authorization server, from Keycloak to Google, copy the code from [`_servers`].
//!
//! Put `BearerAuthLayer` inside your retry layer, so that each attempt sends the current token. If you
//! don't use layers, call [`TokenSource::token`].
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `file-store` | no | `FileStore`: one token for programs that start often |
//! | `private-key-jwt` | no | client authentication by a signed JWT: `Assertion`, `Credentials::private_key_jwt`; signed by aws-lc-rs |
//!
//! # Guarantees
//!
//! - **One request.** Any number of callers without a token share one token request, and dropping a
//!   caller never cancels it.
//! - **Outages.** While a token is valid, no fault of the token endpoint fails your calls. If the service has refused
//!   that token, other calls wait for its successor for one second at most.
//! - **Refused tokens.** One 401 that names no missing role or header replaces the token, unless tokens
//!   were refused shortly before ([the rule](TokenSource#refused-tokens)). Meanwhile the refused call
//!   is held, so that a retry layer outside sends it again with the new token. Refusals cause at most
//!   16 refreshes an hour.
//! - **Clocks.** A gateway whose clock is behind costs no call at a renewal while the old token outlives the
//!   lag, and at the start only its own lag ([two tokens](TokenSource#two-tokens)).
//! - **Roles.** A role that is granted is seen within five minutes, or within an hour if it was missing for
//!   long ([the rule](TokenSource#missing-roles)).
//! - **Recovery.** Once the endpoint is healthy again, you have a token after one backoff. A backoff lasts 30 s at
//!   most, or two minutes after an error that is not [transient](TokenError::is_transient); a `Retry-After` extends it,
//!   to five minutes at most.
//! - **Fail closed.** Every request that is sent carries a token that was valid when the service became
//!   ready. Tokens go only to the origins you list, and over plain http only to loopback addresses. If
//!   a token request is redirected, that is an error.
//! - **Secrecy.** No secret and no token is in any text, event or panic of this crate. The error of your HTTP client may
//!   contain one: it is the source of ours, and the `Debug` of [`Error`] prints it, so redact it with
//!   [`TokenSource::secrets`].
//!
//! # Errors
//!
//! See [`Error`] for the next step after each error, [`TokenSource`] for the load on the token
//! endpoint, and [`TokenEndpoint`] for the accepted replies. [`TokenSource::health`] returns the
//! condition of the token. `tracing` logs each token at info, and each refusal and failure at warn.
//!
//! # Non-goals
//!
//! - Resending refused requests: put a retry layer outside.
//! - One source for several runtimes. Its task runs on the runtime of its first use. If that runtime
//!   ends, the next use spawns another task; while it is blocked or not driven, calls wait.
//! - Machines that are suspended between `poll_ready` and `call`. That call may send an expired token;
//!   the 401 then causes a refresh.
//! - Tokens that are revoked more often than every 225 seconds.
//! - Grants that involve a user, refresh tokens, and tokens that are bound to a key. For any other grant, add
//!   [fields](Credentials::field) to the form.
//! - Checking the `Content-Length` of a request: with one that is not its body's, a server may read
//!   one request as two.
//! - Reading the content of tokens: they are opaque to a client (RFC 9068, section 6).
//! - Compressed token replies, secrets from a pipe, and runtimes other than tokio.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "private-key-jwt")]
pub use self::assertion::Assertion;
#[cfg(feature = "file-store")]
pub use self::store::file::FileStore;
pub use self::{
    credentials::{Credentials, CredentialsProvider},
    endpoint::TokenEndpoint,
    error::{ConfigError, Error, TokenError},
    origin::Origin,
    reply::AccessToken,
    service::{BearerAuth, BearerAuthLayer, ResponseFuture},
    source::{Health, TokenSource, TokenSourceBuilder},
    store::{StoredToken, TokenStore},
};
pub use tower_tds_outcome::{Cause, DeadlineAt, Outcome, Resend};

#[cfg(feature = "private-key-jwt")]
mod assertion;
mod clock;
mod credentials;
mod endpoint;
mod error;
mod origin;
mod reply;
mod request;
mod service;
mod source;
mod state;
mod store;
mod task;

#[cfg(any(doc, doctest))]
#[doc = include_str!("../SERVERS.md")]
pub mod _servers {}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
