//! Adapters: the token layer and the limits read typed errors, and their own errors become typed.

use std::{
    error::Error as _,
    future::Future,
    iter::successors,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{Method, Response, StatusCode};
use pin_project_lite::pin_project;
use tower::BoxError;
use tower_oidc_cc::{Judge, Judgement, Rejection, TokenError, TokenSource};
use tower_service::Service;
use tower_tds_errors::{Error, GiveUp, Kind, Sent};
use tower_tds_limits::{Feedback, LimitError, Outcome, WaitCause};

/// Reads typed errors for the token layer and the limits.
///
/// By default, the token layer and the limits read only responses. Above a
/// [`ClassifyLayer`](tower_tds_errors::ClassifyLayer), refusals are errors: with this value the two
/// layers read the kind of these errors.
///
/// # Examples
/// See [`layers`](crate::layers).
#[derive(Debug, Clone, Copy)]
pub struct ReadError;

/// Converts the errors below the retry layer, as [`into_error`](crate::layers::into_error) does.
///
/// If a call ends while it waits for a token, the error names the token endpoint and the last
/// failed token request.
#[derive(Debug, Clone)]
pub struct IntoError<S> {
    inner: S,
    tokens: TokenSource,
}

pin_project! {
    /// The future of an [`IntoError`].
    ///
    /// # Cancel safety
    /// Dropping it drops the inner one.
    #[derive(Debug)]
    pub struct IntoErrorFuture<F> {
        #[pin]
        inner: F,
        tokens: TokenSource,
    }
}

/// The error of the token layer, over classified responses.
type BearerError = tower_oidc_cc::Error<Error>;

/// The error of the limits, over the token layer.
type LayersError = tower_tds_limits::Error<BearerError>;

// === impl ReadError ===

impl<B> Feedback<Response<B>, BearerError> for ReadError {
    fn read(&self, outcome: Result<&Response<B>, &BearerError>) -> Outcome {
        let error = match outcome {
            Ok(_) => return Outcome::Answered,
            Err(BearerError::Inner(error) | BearerError::Refused(error, _)) => error,
            // Without a token nothing is sent.
            Err(BearerError::Token(_)) => return Outcome::Unsent,
        };
        if let Some(refused) = refused(error) {
            return refused;
        }
        match error.sent() {
            Sent::Answered => match error.status() {
                Some(StatusCode::GATEWAY_TIMEOUT) => Outcome::GatewayTimedOut,
                Some(_) | None => Outcome::Answered,
            },
            Sent::Never => Outcome::Unsent,
            // The request may still be counted.
            Sent::Unknown | _ => Outcome::Lost,
        }
    }
}

impl<B> Judge<Response<B>, Error> for ReadError {
    fn judge(&self, outcome: Result<&Response<B>, &Error>) -> Judgement {
        let Err(error) = outcome else {
            return Judgement::Accepted;
        };
        let kind = error.kind();
        if kind == Kind::MissingRole {
            Judgement::MissingRole
        } else if kind == Kind::MissingCredentials {
            Judgement::NoHeader
        } else if matches!(kind, Kind::InvalidToken | Kind::Unauthorized)
            || error.status() == Some(StatusCode::UNAUTHORIZED)
        {
            Judgement::Refused
        } else {
            // A gateway may respond 404 before it checks a token.
            Judgement::Nothing
        }
    }
}

/// The outcome of a refusal for the limits.
fn refused(error: &Error) -> Option<Outcome> {
    let kind = error.kind();
    if kind == Kind::RateExceeded {
        Some(Outcome::RateExceeded)
    } else if kind == Kind::Throttled || kind == Kind::QuotaExhausted {
        Some(Outcome::QuotaExceeded(error.retry_after()))
    } else if kind == Kind::ConnectionLimit || kind == Kind::RangeUnclear {
        // A `RangeUnclear` may be about connections, so the limits count it.
        Some(Outcome::ConnectionsExceeded)
    } else {
        None
    }
}

// === impl IntoError ===

impl<S> IntoError<S> {
    pub(crate) const fn new(inner: S, tokens: TokenSource) -> Self {
        Self { inner, tokens }
    }
}

impl<S, R> Service<R> for IntoError<S>
where
    S: Service<R, Error = LayersError>,
{
    type Response = S::Response;
    type Error = Error;
    type Future = IntoErrorFuture<S::Future>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx).map_err(into_error)
    }

    #[inline]
    fn call(&mut self, request: R) -> Self::Future {
        IntoErrorFuture {
            inner: self.inner.call(request),
            tokens: self.tokens.clone(),
        }
    }
}

// === impl IntoErrorFuture ===

impl<F, R> Future for IntoErrorFuture<F>
where
    F: Future<Output = Result<R, LayersError>>,
{
    type Output = Result<R, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let polled = this.inner.poll(cx);
        polled.map_err(|error| named(error, this.tokens))
    }
}

/// Converts an error. A wait for a token names the endpoint and its last error.
#[cold]
fn named(error: LayersError, tokens: &TokenSource) -> Error {
    let waited_for_token = matches!(
        &error,
        LayersError::Limit(limit) if limit.cause() == WaitCause::Readiness
    );
    let error = into_error(error);
    if !waited_for_token {
        return error;
    }
    let health = tokens.health();
    let failed = health.last_error.as_ref().map(|error| format!(": {error}"));
    let failed = failed.unwrap_or_default();
    error.with_waited_for(format!("a token from {}{failed}", health.endpoint))
}

/// Converts the errors of the limits and the token layer. An error of the service stays unchanged.
///
/// A call that the limits reject during the pause after a 429 has the kind of that 429. A call
/// without a permit for its socket in time has [`Kind::LimitTimeout`]. A retry after a 416, 423 or
/// 429 costs no budget, because [`RequestLimit`] delays it.
///
/// [`RequestLimit`]: tower_tds_limits::RequestLimit
///
/// # Examples
/// See [`layers`](crate::layers).
#[must_use]
#[cold]
pub fn into_error(error: LayersError) -> Error {
    match error {
        LayersError::Limit(error) => from_limits(error),
        LayersError::Inner(BearerError::Inner(error)) => match limit_error(&error) {
            Some(limit) => from_limits(limit),
            None if refused(&error).is_some() => error.with_paced_retries(),
            None => error,
        },
        LayersError::Inner(BearerError::Refused(error, rejection)) => {
            from_refused(error, &rejection)
        }
        LayersError::Inner(BearerError::Token(error)) => from_token(error),
    }
}

/// A refused call is sent again once: at no cost if a newer token exists or was requested for it, and
/// for one retry of the budget if not, because one node of the service may have erred. A call whose
/// token the gateway could not check is retried as in any outage.
fn from_refused(mut error: Error, rejection: &Rejection) -> Error {
    if matches!(error.kind(), Kind::InvalidToken | Kind::Unauthorized) {
        if rejection.is_worth_a_resend() {
            error = error.with_one_resend().with_waited_for("another token");
        } else if let Some(wait) = rejection.retry_after() {
            error = error.with_retries_after(wait);
        }
    }
    error
}

/// Finds the limit's error inside a connector's: there was no permit for a socket in time.
fn limit_error(error: &Error) -> Option<LimitError> {
    let mut next = error.source();
    while let Some(link) = next {
        if let Some(limit) = link.downcast_ref::<LimitError>() {
            return Some(limit.clone());
        }
        next = link.source();
    }
    None
}

fn from_limits(error: LimitError) -> Error {
    let (wait, cause) = (error.retry_after(), error.cause());
    let is_final = error.is_deadline();
    let kind = if error.is_answer_timeout() || (is_final && !error.is_rejected()) {
        Kind::Timeout
    } else if !(error.is_rejected() && cause == WaitCause::Pause) {
        Kind::LimitTimeout
    } else if wait > Some(SHORT_QUOTA) {
        Kind::QuotaExhausted
    } else {
        Kind::Throttled
    };
    let sent = if error.was_sent() {
        Sent::Unknown
    } else {
        Sent::Never
    };
    let waited_for = match cause {
        WaitCause::Readiness => "a token".to_owned(),
        cause => cause.to_string(),
    };
    // A rejected call has not waited.
    let waited = !(is_final && error.is_rejected());
    let mut error = Error::new(kind, error).with_sent(sent);
    if waited {
        error = error.with_waited_for(waited_for);
    }
    if is_final {
        // Another attempt would have even less time.
        error.set_gave_up(GiveUp::Deadline);
    }
    match wait {
        Some(wait) => error.with_retry_after(wait),
        None => error,
    }
}

fn from_token(error: TokenError) -> Error {
    // The kind of the token request's own failure decides.
    let met = Error::from(BoxError::from(error.clone())).kind();
    let kind = if error.is_foreign_origin() {
        Kind::InvalidRequest
    } else if met == Kind::Tls {
        // A retry does not help with a wrong certificate.
        Kind::Tls
    } else if met == Kind::Rejected {
        Kind::TokenRefused
    } else if error.is_transient() || error.is_missing_credentials() {
        // The credentials may not have been written yet.
        Kind::TokenUnavailable
    } else {
        Kind::TokenRefused
    };
    let wait = error.retry_after();
    let endpoint = error.endpoint().and_then(|endpoint| endpoint.parse().ok());
    let advice = match (met, kind) {
        // The errors' own texts are about the proxy and about certificates.
        (Kind::Rejected, _) | (_, Kind::Tls) => None,
        _ if refused_tunnel(&error) => None,
        _ if error.is_foreign_origin() => Some(FOREIGN),
        _ => Some(error.advice()),
    };
    let secrets = error.secrets().cloned();
    let mut error = Error::new(kind, error);
    if let Some(secrets) = secrets {
        error = error.with_secrets(secrets);
    }
    if let Some(endpoint) = endpoint {
        error = error.with_request(Method::POST, &endpoint);
    }
    if let Some(advice) = advice {
        error = error.with_advice(advice);
    }
    match wait {
        Some(wait) => error.with_retry_after(wait),
        None => error,
    }
}

/// Whether a proxy refused the tunnel of a request.
fn refused_tunnel(error: &TokenError) -> bool {
    let causes = successors(error.source(), |cause| (*cause).source());
    causes.into_iter().any(|cause| cause.is::<Error>())
}

/// The token layer advises to move layers, which the user of a `Client` cannot do.
const FOREIGN: &str = "use the origin of the base URL, or build another client";

/// A longer pause belongs to a quota of an hour or a day: `Kind::QuotaExhausted`.
const SHORT_QUOTA: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
