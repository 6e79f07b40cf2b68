//! The vocabulary that the layers of tower-tds share: outcomes of calls, waits, deadlines and texts without secrets.
//!
//! Your token layer, your limiter and your retry layer all look at the same 401, 423 or 429. This crate defines once
//! what it means to them: the [`Outcome`] of the call, the [wait](retry_after) that the response demands, and the
//! [deadline](DeadlineAt) of the call. [tower-oidc-cc], [tower-tds-errors] and [tower-tds-limits] use it already, so
//! you need it only for a layer of your own between them: if your error carries a [`Cause`], every layer above can read
//! its outcome.
//!
//! ```
//! use http::Response;
//! use tower_tds_outcome::Outcome;
//!
//! let outcome = |status: u16| Outcome::of_response(&Response::builder().status(status).body(()).unwrap());
//! assert_eq!(outcome(200), Outcome::Accepted);
//! assert_eq!(outcome(401), Outcome::TokenRefused);
//! assert_eq!(outcome(423), Outcome::RateExceeded);
//! ```
//!
//! A server, a proxy or an HTTP client may echo your secret in a text, so let [`Secrets`] redact such texts before you
//! log them:
//!
//! ```
//! use tower_tds_outcome::Secrets;
//!
//! let secrets = Secrets::default();
//! secrets.add("client secret", "hunter2-is-known");
//! assert_eq!(secrets.redact("got hunter2%2Dis-known"), "got [redacted]");
//! assert_eq!(secrets.redact("no route to https://h/v1?key=4bT9"), "no route to https://h/v1?[redacted]");
//! assert_eq!(secrets.redact("error code: ACCESS_DENIED"), "error code: ACCESS_DENIED");
//! ```
//!
//! # Guarantees
//!
//! - **Values that you add are replaced** wherever they stand, in each form that [`Secrets::redact`] lists. A value of
//!   fewer than eight characters is replaced only as a whole word, and not in base64.
//! - **Ordinary words stay.** If a text has none of your values, only what its syntax shows to be secret changes:
//!   password and query of a URL, the credential after `Bearer` or `Basic`, and JWTs.
//! - **Memory is bounded.** `Secrets` keeps the last four values of each name, and those that have a guard.
//!
//! # Non-goals
//!
//! - Finding a secret that you did not add. A guess by shape eats ordinary words, and misses passwords.
//! - Redacting bodies, which may be binary.
//!
//! [tower-oidc-cc]: https://docs.rs/tower-oidc-cc
//! [tower-tds-errors]: https://docs.rs/tower-tds-errors
//! [tower-tds-limits]: https://docs.rs/tower-tds-limits

pub use self::{
    address::{default_port, is_loopback, place},
    cause::{Cause, Resend, Sent, chain},
    deadline::{DeadlineAt, HandOver, Handed},
    framing::remove_connection_headers,
    message::{said, unmarked},
    outcome::Outcome,
    retry_after::retry_after,
    secrets::{SecretGuard, Secrets},
};

mod address;
mod cause;
mod deadline;
mod framing;
mod message;
mod outcome;
mod retry_after;
mod secrets;
mod text;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
