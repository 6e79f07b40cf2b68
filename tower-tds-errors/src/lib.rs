//! Says what an answer of the transport data service means, and sends again what may succeed then.
//!
//! ```text
//! request -> Retry -> (token, limits) -> Classify -> HTTP client
//!            waits,                      2xx, 304: passed as they come
//!            attempts,                   all else: an `Error` with kind, text, hint;
//!            deadline                    its body drained, so that the connection lives
//! ```
//!
//! [`Classify`] is innermost, so that everything above it sees typed errors; [`Retry`] is outermost,
//! so that each attempt takes the current token and a new permit.
//!
//! ```
//! use std::time::Duration;
//! use http::{Request, Response};
//! use tower::{BoxError, ServiceBuilder, ServiceExt};
//! use tower_tds_errors::{ClassifyLayer, Kind, RetryLayer, Stop};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! # let client = tower::service_fn(async |_: Request<String>| {
//! #     let mut response = Response::new(r#"{"message":"API rate limit exceeded"}"#.to_owned());
//! #     *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
//! #     response.headers_mut().insert("retry-after", "3600".parse().unwrap());
//! #     Ok::<_, BoxError>(response)
//! # });
//! let stack = ServiceBuilder::new()
//!     .layer(RetryLayer::new().deadline(Duration::from_secs(60)))
//!     // Token and limits go here.
//!     .layer(ClassifyLayer::new())
//!     .service(client);
//!
//! let request = Request::get("https://api.example/v2/rail").body(String::new()).unwrap();
//! match stack.oneshot(request).await {
//!     Ok(_response) => unreachable!("a 2xx or a 304; this service's quota is used up"),
//!     Err(error) => {
//!         assert_eq!(error.kind(), Kind::QuotaExhausted);
//!         assert_eq!(error.message(), Some("API rate limit exceeded"));
//!         // An hour is not slept through. Come back then.
//!         assert_eq!(error.stopped_because(), Some(Stop::HintTooLong));
//!         assert_eq!(error.retry_after(), Some(Duration::from_secs(3600)));
//!         assert!(error.retry_at().is_some());
//!     }
//! }
//! # }
//! ```
//!
//! # What means what
//!
//! The status alone, or the type of a transport error, decides a valid kind. Texts only refine it,
//! whether they come as JSON, text, HTML or XML, in the body or in `WWW-Authenticate`. If these two
//! contradict each other, the header counts: a body may be cut, generic or translated.
//!
//! | answer | kind | retried | the caller's next move |
//! |---|---|---|---|
//! | 401 `no Authorization header found` | [`MissingCredentials`](Kind::MissingCredentials) | no | put a token layer inside the retry layer |
//! | 401 `invalid token`, `JWT expired` | [`InvalidToken`](Kind::InvalidToken) | once, at once: the token layer has a new one | check realm and clock |
//! | 401, 403 `Access token does not have the required scope/role: Missing required realm role` | [`MissingRole`](Kind::MissingRole) | no | have the role granted |
//! | 401 by a gateway that cannot check tokens, `accessing introspection endpoint failed: timeout` | [`IdentityUnavailable`](Kind::IdentityUnavailable) | backoff; the token is kept | try again later |
//! | 401 that says nothing else | [`Unauthorized`](Kind::Unauthorized) | once, at once, unless its body was cut | check the key |
//! | 429 | [`Throttled`](Kind::Throttled) | after what it asks for ([`retry_at`](Error::retry_at)), or a second and a long backoff | wait until the quota resets |
//! | 429 that names an hour, a day or longer | [`QuotaExhausted`](Kind::QuotaExhausted) | after what it asks for or a second, if that is short enough | come back when the quota resets |
//! | 423 | [`RateExceeded`](Kind::RateExceeded) | after a second of silence | share one limiter |
//! | 416 without `Range` asked | [`ConnectionLimit`](Kind::ConnectionLimit) | when one of our bodies ended ([`Bodies`]), else backoff | share one client |
//! | 416 with `Range` asked, and `Content-Range` | [`RangeNotSatisfiable`](Kind::RangeNotSatisfiable) | no | ask for a range inside it |
//! | 416 with `Range` asked, but no `Content-Range` | [`RangeUnclear`](Kind::RangeUnclear) | once, by backoff | check the range; share one client |
//! | 423 in the words of RFC 4918, or a `Lock-Token` asked | [`Locked`](Kind::Locked) | no | wait until the lock's owner releases it |
//! | 421 | [`Misdirected`](Kind::Misdirected) | once, at once | try again on a new connection |
//! | 500, 502, 503, 520, 521, 523 | [`Unavailable`](Kind::Unavailable) | backoff | try again later |
//! | 408, 504, 522, 524 | [`ServerTimeout`](Kind::ServerTimeout) | backoff | try again later, or ask for less |
//! | 425 | [`TooEarly`](Kind::TooEarly) | backoff | try again |
//! | 300, 301, 302, 303, 307, 308 | [`UnexpectedRedirect`](Kind::UnexpectedRedirect) | no | check the base url |
//! | 200 `text/html` where only JSON or XML is accepted | [`UnexpectedContent`](Kind::UnexpectedContent) | no | check the base url |
//! | 511 | [`CaptivePortal`](Kind::CaptivePortal) | no | log in to that network |
//! | 403 | [`Forbidden`](Kind::Forbidden) | no | check what the key may do |
//! | 404, 410 | [`NotFound`](Kind::NotFound) | no | check the path |
//! | 400, 402, 405, 406, 409, 422, 501, 505, and all that is not named here | [`Rejected`](Kind::Rejected) | no | change the request |
//! | 407, or no tunnel | [`Proxy`](Kind::Proxy) | no | check the proxy |
//! | no connection | [`Connect`](Kind::Connect), [`Dns`](Kind::Dns), [`ConnectTimeout`](Kind::ConnectTimeout), [`Unsent`](Kind::Unsent) | backoff, any method | try again |
//! | HTTP/2: stream refused, connection closing | [`StreamRefused`](Kind::StreamRefused), [`GoAway`](Kind::GoAway) | backoff, any method | try again |
//! | the connection ends before the answer | [`Reset`](Kind::Reset), [`Incomplete`](Kind::Incomplete), [`Timeout`](Kind::Timeout) | backoff, idempotent methods; a GET that met a closed connection first once at once | try again |
//! | a success that breaks off, or goes silent, seen by [`Guard`] | [`Truncated`](Kind::Truncated), [`BodyReset`](Kind::BodyReset), [`Stalled`](Kind::Stalled) | by its caller, who has the part | fetch it again |
//! | a body in a broken coding | [`Decode`](Kind::Decode) | no | ask for another coding |
//! | a certificate, a handshake | [`Tls`](Kind::Tls) | no | check certificates |
//! | no HTTP | [`Malformed`](Kind::Malformed) | no | check scheme, host and port |
//! | a request that cannot be sent | [`InvalidRequest`](Kind::InvalidRequest) | no | use an absolute uri |
//! | from other layers, by [`Error::new`] | [`TokenUnavailable`](Kind::TokenUnavailable) | backoff, any method | try again later |
//! | from other layers, by [`Error::new`] | [`LimitTimeout`](Kind::LimitTimeout) | backoff, any method | send less at once |
//! | from other layers, by [`Error::new`] | [`TokenRefused`](Kind::TokenRefused) | no | check client id and secret |
//! | an error of no type that is known here | [`Unrecognized`](Kind::Unrecognized) | no | see the source of this error |
//!
//! (`tests/front_page.rs` reads this table, and tries each row.)
//!
//! Where a service means something else, a [`Rule`] says so, by status, header, message or a
//! function; one that forbids a retry stands against all others.
//!
//! *Backoff* is exponential with full jitter, or decorrelated ([`Backoff`]). A wait that the service asks for is a
//! floor: jitter only adds to it. One above [`RetryLayer::longest_wait`], or beyond the deadline,
//! ends the request at once instead of being cut short.
//!
//! # What bounds it
//!
//! | bound | default | when it is met |
//! |---|---|---|
//! | [`attempts`](RetryLayer::attempts) | 3 | [`Stop::Attempts`] |
//! | [`attempt_timeout`](RetryLayer::attempt_timeout), or what is left to the deadline | 60 s | the attempt is a [`Timeout`](Kind::Timeout), and retried like one |
//! | [`deadline`](RetryLayer::deadline) over attempts, waits, reads and readiness | 120 s | [`Stop::Deadline`]; a wait that does not fit is not begun |
//! | [`longest_wait`](RetryLayer::longest_wait) that is asked for | 30 s | [`Stop::HintTooLong`], with [`Error::retry_at`] |
//! | [`budget`](RetryLayer::budget) of each host | 10 retries for 100 requests, one a second, ten at once | [`Stop::Budget`] |
//!
//! # Guarantees
//!
//! - A success keeps its body type and is not polled. These layers allocate nothing for one; a
//!   request's headers are kept in a buffer of the thread. A request with extensions allocates
//!   their copy. Without [`Guard`] the body is not wrapped.
//! - An error body is read within 16 KiB and a second, and undone (gzip, br, deflate, by what the
//!   answer says) within 64 KiB. One that ends within them leaves its connection in use.
//! - No request is sent more often than [`RetryLayer::attempts`] says, nested or not, but for one
//!   that met a closed connection; and none with effects is sent again unless it never left, or its
//!   caller allows it ([`Repeatable`]).
//! - A host that fails for all is sent its load, a tenth more, and one a second: whatever it
//!   answers, and however many calls are waiting (`tests/amplification.rs`, by the server's count).
//!   Beyond that go the one attempt of each call that follows a refused token, and attempts after
//!   connections on which nothing was looked at.
//! - A call that is dropped, at any point, holds nothing and owes its host nothing for what was not
//!   sent. While it waits it holds no connection, no permit and no response.
//! - A failure is never an `Ok`: not the last 503 either.
//! - What looks like a token, a secret or the query of a URL is in no text of an error, its `Debug`
//!   included. What the service said, whatever it is, is in [`Error::body`] alone. A source that
//!   another layer wrapped speaks for itself.
//!
//! # Features
//!
//! None is on by default, and each only adds.
//!
//! | feature | adds |
//! |---|---|
//! | `charset` | error bodies in Big5, GBK and the web's other encodings, where they are declared |
//! | `http2` | refused streams and closing connections told from resets |
//! | `reqwest` | reqwest's errors, as `Error::from(BoxError::from(error))` |
//! | `tower-http` | `KindClassifier`, for the trace and other layers of tower-http |
//! | `tower-retry` | `RetryPolicy`, for tower's own retry layer |
//!
//! # Non-goals
//!
//! No body is buffered to make it replayable, and nothing is retried after the head of a success.

mod chain;
mod classify;
mod clock;
mod error;
mod guard;
mod hint;
mod kind;
mod retry;
mod sent;
mod stop;
mod tape;

/// The futures of the services.
pub mod future {
    pub use crate::classify::future::ResponseFuture as ClassifyFuture;
    pub use crate::guard::future::ResponseFuture as GuardFuture;
    #[cfg(feature = "tower-retry")]
    pub use crate::retry::adapter::Wait;
    pub use crate::retry::future::ResponseFuture as RetryFuture;
}

#[cfg(feature = "tower-http")]
pub use self::classify::KindClassifier;
pub use self::classify::{Answer, Classify, ClassifyLayer, Failure, Rule, classify};
pub use self::error::Error;
pub use self::guard::{Bodies, Guard, GuardBody, GuardLayer};
pub use self::kind::Kind;
#[cfg(feature = "tower-retry")]
pub use self::retry::adapter::RetryPolicy;
pub use self::retry::attempt::{Attempt, Deadline, Repeatable, Retried};
pub use self::retry::backoff::Backoff;
pub use self::retry::budget::Budget;
pub use self::retry::counts::Counts;
pub use self::retry::replay::{CloneBody, NeverReplay, Replay};
pub use self::retry::{Retry, RetryLayer};
pub use self::sent::Sent;
pub use self::stop::Stop;

/// Has the README's example compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
