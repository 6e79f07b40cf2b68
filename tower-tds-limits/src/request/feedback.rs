//! Feedback: whether an outcome means that a request was counted, and what it says of the limits.
#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

mod transport;

use std::time::{Duration, SystemTime};

use http::{HeaderMap, Response, StatusCode, header};

use crate::clock;

/// Reads from an outcome whether the service has counted the request, and whether it refused it
/// for a limit.
///
/// # Examples
/// ```
/// use tower_tds_limits::{Feedback, Outcome};
///
/// #[derive(Clone)]
/// struct ReadIo;
///
/// impl<T> Feedback<T, std::io::Error> for ReadIo {
///     fn read(&self, outcome: Result<&T, &std::io::Error>) -> Outcome {
///         match outcome {
///             Ok(_) => Outcome::Answered,
///             Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
///                 Outcome::Unsent
///             }
///             Err(_) => Outcome::Lost,
///         }
///     }
/// }
/// # let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
/// # assert_eq!(ReadIo.read(Err::<&(), _>(&refused)), Outcome::Unsent);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot read what the service below the limit answers",
    label = "no `Feedback<{T}, {E}>`",
    note = "the errors of `tower-tds` are read by `.feedback(ReadError)`, if a `ClassifyLayer` below makes them",
    note = "for errors of your own implement it, or take them all for lost: `.feedback(ReadResponse)`",
    note = "or see whether the layers stand in the order that `{Self}` is made for"
)]
pub trait Feedback<T, E> {
    /// Reads one outcome of the inner service.
    fn read(&self, outcome: Result<&T, &E>) -> Outcome;
}

/// What an outcome says about a request's being counted. An answer that came as an error is an
/// answer too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The service answered, so it has counted the request.
    Answered,
    /// A gateway answered that what is behind it failed (502): a proof, unless that is where requests
    /// are counted ([`Limits::counted_behind`](crate::Limits::counted_behind)). A 503 does not tell who
    /// made it, and is [`Outcome::Answered`].
    GatewayFailed,
    /// A gateway answered that what is behind it has not (504): a proof a second later, or when
    /// [`Limits::counted_behind`](crate::Limits::counted_behind) says.
    GatewayTimedOut,
    /// It refused the request because there were too many in a short time (contract: 423).
    RateExceeded,
    /// It refused the request because this credential has made too many (contract: 429), with its
    /// hint for how long to wait.
    QuotaExceeded(Option<Duration>),
    /// It refused the request because there are too many connections (contract: 416).
    ConnectionsExceeded,
    /// Nothing reached the wire: the permit comes back at once.
    Unsent,
    /// No answer will come, and the service may still count the request, for
    /// [`Limits::lost_after`](crate::Limits::lost_after).
    Lost,
}

/// The default: a response is an answer, by the contract's statuses, and an error of hyper-util's
/// client, of hyper, of IO, or a boxed one says what its sources say.
///
/// A source whose text is a status alone, such as `423 Locked`, is a refusal with that status.
///
/// An error type of its own it does not read, and the stack does not compile: implement
/// [`Feedback`] for it, or take every error for lost ([`ReadResponse`]).
///
/// | status or error | outcome |
/// |---|---|
/// | 423 | [`Outcome::RateExceeded`] |
/// | 429 | [`Outcome::QuotaExceeded`], with `Retry-After` in seconds or as a date (RFC 9110 10.2.3) |
/// | 416 | [`Outcome::ConnectionsExceeded`], unless `Content-Range` says that it is about a range (RFC 9110 15.5.17) |
/// | 502, 504 | [`Outcome::GatewayFailed`], [`Outcome::GatewayTimedOut`] |
/// | others, 503 too | [`Outcome::Answered`] |
/// | no connection was made | [`Outcome::Unsent`] |
/// | other errors | [`Outcome::Lost`] |
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadStatus;

/// As [`ReadStatus`], and takes every error for lost, of whatever type.
///
/// # Examples
/// ```
/// use tower_tds_limits::{Limiter, Limits, ReadResponse, RequestLimitLayer};
///
/// let limiter = Limiter::new(Limits::default());
/// let layer = RequestLimitLayer::new(limiter).feedback(ReadResponse);
/// # drop(layer);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadResponse;

// === impl ReadStatus ===

impl ReadStatus {
    /// Reads a response, or has `error` read why there is none.
    #[inline]
    fn read_or<B, E>(
        outcome: Result<&Response<B>, &E>,
        error: impl FnOnce(&E) -> Outcome,
    ) -> Outcome {
        match outcome {
            // Nearly always, and then there is nothing to read.
            Ok(response) if response.status().is_success() => Outcome::Answered,
            Ok(response) => Self::read_head(response.status(), response.headers()),
            Err(because) => error(because),
        }
    }

    fn read_head(status: StatusCode, headers: &HeaderMap) -> Outcome {
        match status {
            StatusCode::LOCKED => Outcome::RateExceeded,
            StatusCode::TOO_MANY_REQUESTS => Outcome::QuotaExceeded(retry_after(headers)),
            StatusCode::RANGE_NOT_SATISFIABLE if !headers.contains_key(header::CONTENT_RANGE) => {
                Outcome::ConnectionsExceeded
            }
            StatusCode::BAD_GATEWAY => Outcome::GatewayFailed,
            StatusCode::GATEWAY_TIMEOUT => Outcome::GatewayTimedOut,
            _ => Outcome::Answered,
        }
    }
}

// === impl ReadResponse ===

impl<B, E> Feedback<Response<B>, E> for ReadResponse {
    #[inline]
    fn read(&self, outcome: Result<&Response<B>, &E>) -> Outcome {
        ReadStatus::read_or(outcome, |_| Outcome::Lost)
    }
}

/// RFC 9110 10.2.3: seconds or a date, and of several the longest.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all(header::RETRY_AFTER).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    let waits = values.filter_map(|value| match httpdate::parse_http_date(value.trim()) {
        Ok(until) => Some(until.duration_since(answered(headers)).unwrap_or_default()),
        Err(_) => value.split(',').filter_map(seconds).max(),
    });
    waits.max()
}

/// What dates count from: the answer's own `Date`, if it has one, so that the two clocks need not agree.
fn answered(headers: &HeaderMap) -> SystemTime {
    let date = headers
        .get(header::DATE)
        .and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
    date.unwrap_or_else(clock::wall)
}

/// A fraction, which servers are seen to send, is rounded up.
fn seconds(value: &str) -> Option<Duration> {
    let value = value.trim();
    let (whole, fraction) = value.split_once('.').unwrap_or((value, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let up = u64::from(fraction.bytes().any(|digit| digit != b'0'));
    // More seconds than a number holds are more than anybody waits for.
    let whole = digits(whole).then(|| whole.parse().unwrap_or(u64::MAX));
    let seconds = whole.filter(|_| digits(fraction))?.saturating_add(up);
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests;
