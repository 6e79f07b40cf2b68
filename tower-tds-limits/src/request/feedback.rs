//! What the outcome of a request says about its being counted, and about the limits.

use std::{fmt, time::Duration};

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
    note = "implement it, or see whether the layers stand in the order that `{Self}` is made for"
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
    /// It answered, and says that it had the request for this long: it counted it before that.
    /// An earlier proof gives the permit back earlier. Believe only the service itself, and only
    /// where it counts a request when it comes in.
    Served(Duration),
    /// It refused the request because there were too many in a short time (contract: 423).
    RateExceeded,
    /// It refused the request because this credential has made too many (contract: 429), with its
    /// hint for how long to wait.
    QuotaExceeded(Option<Duration>),
    /// It refused the request because there are too many connections (contract: 416).
    ConnectionsExceeded,
    /// Nothing reached the wire: the permit comes back at once.
    Unsent,
    /// No answer will come, and the service may still count the request.
    Lost,
}

/// The default: a response is an answer, by the contract's statuses, and an error leaves all
/// open.
///
/// | status | outcome |
/// |---|---|
/// | 423 | [`Outcome::RateExceeded`] |
/// | 429 | [`Outcome::QuotaExceeded`], with `Retry-After` in seconds or as a date (RFC 9110 10.2.3) |
/// | 416 | [`Outcome::ConnectionsExceeded`], unless `Content-Range` says that it is about a range (RFC 9110 15.5.17) |
/// | others | [`Outcome::Answered`] |
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct ReadStatus {
    served_in: Option<fn(&HeaderMap) -> Option<Duration>>,
}

// === impl ReadStatus ===

impl ReadStatus {
    /// The default reading.
    #[must_use]
    pub const fn new() -> Self {
        Self { served_in: None }
    }

    /// Reads from the headers for how long the service has had the request, where it says so.
    ///
    /// The permit is then live until an interval after the service had it, and not after the
    /// answer was here: see [`Outcome::Served`] for when that may be believed.
    ///
    /// Proofs then come out of order, and each that does has the
    /// [counter rule](crate::Rules::counter) take up all those of the last two intervals anew,
    /// under the lock: of no account at 50 requests a second, and more than all else that a call
    /// costs here from a few hundred on. Use it there with [`Rules::window`](crate::Rules::window),
    /// where that is how the service counts, or do without.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use http::HeaderMap;
    /// use tower_tds_limits::ReadStatus;
    ///
    /// fn response_time(headers: &HeaderMap) -> Option<Duration> {
    ///     let millis = headers.get("x-response-time")?.to_str().ok()?;
    ///     millis.parse().ok().map(Duration::from_millis)
    /// }
    ///
    /// let feedback = ReadStatus::new().served_in(response_time);
    /// # drop(feedback);
    /// ```
    #[must_use]
    pub const fn served_in(mut self, read: fn(&HeaderMap) -> Option<Duration>) -> Self {
        self.served_in = Some(read);
        self
    }

    fn read_head(self, status: StatusCode, headers: &HeaderMap) -> Outcome {
        match status {
            StatusCode::LOCKED => Outcome::RateExceeded,
            StatusCode::TOO_MANY_REQUESTS => Outcome::QuotaExceeded(retry_after(headers)),
            StatusCode::RANGE_NOT_SATISFIABLE if !headers.contains_key(header::CONTENT_RANGE) => {
                Outcome::ConnectionsExceeded
            }
            _ => match self.served_in.and_then(|read| read(headers)) {
                Some(served) => Outcome::Served(served),
                None => Outcome::Answered,
            },
        }
    }
}

impl<B, E> Feedback<Response<B>, E> for ReadStatus {
    #[inline]
    fn read(&self, outcome: Result<&Response<B>, &E>) -> Outcome {
        match outcome {
            // Nearly always, and then there is nothing to read.
            Ok(response) if self.served_in.is_none() && response.status().is_success() => {
                Outcome::Answered
            }
            Ok(response) => self.read_head(response.status(), response.headers()),
            Err(_) => Outcome::Lost,
        }
    }
}

impl fmt::Debug for ReadStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadStatus")
            .field("served_in", &self.served_in.is_some())
            .finish()
    }
}

/// RFC 9110 10.2.3: seconds or a date. A date counts from the answer's own `Date`, if it has one,
/// so that the two clocks need not agree.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let date = headers
        .get(header::DATE)
        .and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let from = date.unwrap_or_else(clock::wall);
    Some(until.duration_since(from).unwrap_or_default())
}

#[cfg(test)]
mod tests;
