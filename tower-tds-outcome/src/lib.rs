//! Takes secrets out of texts, and reads how long a response wants you to wait: the vocabulary that the layers of
//! tower-tds share.
//!
//! You rarely need this crate by itself, because [tower-oidc-cc], [tower-tds-errors] and [tower-tds-limits] use it for
//! you. Use it where your own code logs what a server, a proxy or an HTTP client said:
//!
//! ```
//! use tower_tds_outcome::Secrets;
//!
//! let secrets = Secrets::default();
//! secrets.add("client secret", "hunter2-is-known");
//! assert_eq!(secrets.redact("got hunter2%2Dis-known"), "got [redacted]");
//! assert_eq!(secrets.redact("GET /v1/bus?api_key=4bT9x0QzL3"), "GET /v1/bus?api_key=[redacted]");
//! assert_eq!(secrets.redact("error code: ACCESS_DENIED"), "error code: ACCESS_DENIED");
//! ```
//!
//! # Guarantees
//!
//! - **Known values** are replaced in each form that [`Secrets::redact`] lists, wherever they stand.
//! - **Words stay.** A text without a known value changes only where something in it is no word of a language.
//! - Memory has a bound: the last four values of each name.
//!
//! # Non-goals
//!
//! - Finding a secret that nobody told the handle, and that looks like a word.
//! - Redacting bodies, which may be binary.
//!
//! [tower-oidc-cc]: https://docs.rs/tower-oidc-cc
//! [tower-tds-errors]: https://docs.rs/tower-tds-errors
//! [tower-tds-limits]: https://docs.rs/tower-tds-limits

pub use self::{retry_after::retry_after, secrets::Secrets};

mod retry_after;
mod secrets;
mod shapes;
mod text;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
