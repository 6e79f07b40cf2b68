//! Readers of outcomes: whether a request was counted, and whether a limit refused it.

use std::{convert::Infallible, error::Error, io};

use http::{HeaderMap, Response, StatusCode, header};
use hyper_util::client::legacy;
use tower_tds_outcome::retry_after;

use crate::{
    account::reactions::Outcome,
    clock,
    error::{self, LimitError},
};

/// Reads from an outcome whether the service counted the request, and whether a limit refused it.
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
    message = "`{Self}` cannot read the responses and errors of the service below the limit",
    label = "no `Feedback<{T}, {E}>`",
    note = "for errors of a `ClassifyLayer` below, use `.feedback(ReadError)` of `tower-tds`",
    note = "for an error type of your own, implement `Feedback`, or count every error as lost: `.feedback(ReadResponse)`",
    note = "or check the order of the layers: `{Self}` reads what the layer right below returns"
)]
pub trait Feedback<T, E> {
    /// Reads one outcome of the inner service.
    fn read(&self, outcome: Result<&T, &E>) -> Outcome;
}

/// Reads the statuses of the transport data service, and the errors of hyper, hyper-util and IO. It
/// is the default.
///
/// A boxed error is read by its chain of sources.
///
/// An error type of your own does not compile with it. Implement [`Feedback`] for that type, or
/// count every error as lost ([`ReadResponse`]).
///
/// | status or error | outcome |
/// |---|---|
/// | 423 | [`Outcome::RateExceeded`] |
/// | 429 | [`Outcome::QuotaExceeded`], with the wait of [`retry_after`] |
/// | 416 | [`Outcome::ConnectionsExceeded`], unless a `Content-Range` shows that a range was refused (RFC 9110 15.5.17) |
/// | 504 | [`Outcome::GatewayTimedOut`] |
/// | others, 502 and 503 included | [`Outcome::Answered`] |
/// | no connection was made | [`Outcome::Unsent`] |
/// | other errors | [`Outcome::Lost`] |
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadStatus;

/// Reads responses as [`ReadStatus`] does, and counts every error as lost.
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

/// The error of boxed services.
type BoxError<'a> = Box<dyn Error + Send + Sync + 'a>;

// === impl ReadStatus ===

impl ReadStatus {
    /// Reads a response, or an error with `error`.
    #[inline]
    fn read_or<B, E>(
        outcome: Result<&Response<B>, &E>,
        error: impl FnOnce(&E) -> Outcome,
    ) -> Outcome {
        match outcome {
            // The common case needs no headers.
            Ok(response) if response.status().is_success() => Outcome::Answered,
            Ok(response) => Self::read_head(response.status(), response.headers()),
            Err(because) => error(because),
        }
    }

    fn read_head(status: StatusCode, headers: &HeaderMap) -> Outcome {
        match status {
            StatusCode::LOCKED => Outcome::RateExceeded,
            StatusCode::TOO_MANY_REQUESTS => {
                Outcome::QuotaExceeded(retry_after(headers, clock::wall()))
            }
            StatusCode::RANGE_NOT_SATISFIABLE if !headers.contains_key(header::CONTENT_RANGE) => {
                Outcome::ConnectionsExceeded
            }
            StatusCode::GATEWAY_TIMEOUT => Outcome::GatewayTimedOut,
            _ => Outcome::Answered,
        }
    }
}

/// If no connection was made, nothing was sent.
impl<B> Feedback<Response<B>, legacy::Error> for ReadStatus {
    #[inline]
    fn read(&self, outcome: Result<&Response<B>, &legacy::Error>) -> Outcome {
        Self::read_or(outcome, |error| read_chain(Some(error)))
    }
}

/// Reads a boxed error and its sources.
impl<B> Feedback<Response<B>, BoxError<'_>> for ReadStatus {
    #[inline]
    fn read(&self, outcome: Result<&Response<B>, &BoxError<'_>>) -> Outcome {
        Self::read_or(outcome, |error| read_chain(error.source()))
    }
}

impl<B> Feedback<Response<B>, hyper::Error> for ReadStatus {
    #[inline]
    fn read(&self, outcome: Result<&Response<B>, &hyper::Error>) -> Outcome {
        Self::read_or(outcome, |error| read_chain(Some(error)))
    }
}

impl<B> Feedback<Response<B>, io::Error> for ReadStatus {
    #[inline]
    fn read(&self, outcome: Result<&Response<B>, &io::Error>) -> Outcome {
        Self::read_or(outcome, |error| read_chain(Some(error)))
    }
}

impl<B> Feedback<Response<B>, Infallible> for ReadStatus {
    #[inline]
    fn read(&self, outcome: Result<&Response<B>, &Infallible>) -> Outcome {
        Self::read_or(outcome, |error| match *error {})
    }
}

/// Reads the error of another `RequestLimit` below this one.
impl<B, E> Feedback<Response<B>, error::Error<E>> for ReadStatus
where
    Self: Feedback<Response<B>, E>,
{
    #[inline]
    fn read(&self, outcome: Result<&Response<B>, &error::Error<E>>) -> Outcome {
        match outcome {
            Ok(response) => Feedback::<_, E>::read(self, Ok(response)),
            Err(error::Error::Limit(error)) if error.was_sent() => Outcome::Lost,
            Err(error::Error::Limit(_)) => Outcome::Unsent,
            Err(error::Error::Inner(error)) => self.read(Err(error)),
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

#[cold]
fn read_chain(error: Option<&(dyn Error + 'static)>) -> Outcome {
    let mut there_was = false;
    let mut next = error;
    while let Some(error) = next {
        // Once there was a connection, no source can show that nothing was sent on it.
        there_was |= error.is::<hyper::Error>()
            || matches!(error.downcast_ref::<legacy::Error>(), Some(error) if !error.is_connect());
        if !there_was && had_no_connection(error) {
            return Outcome::Unsent;
        }
        next = error.source();
    }
    Outcome::Lost
}

/// Whether the error shows that there was no connection.
fn had_no_connection(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<legacy::Error>() {
        return error.is_connect();
    }
    if let Some(error) = error.downcast_ref::<LimitError>() {
        return !error.was_sent();
    }
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(
        kind,
        Some(
            io::ErrorKind::ConnectionRefused
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::AddrNotAvailable
        )
    )
}

#[cfg(test)]
mod tests;
