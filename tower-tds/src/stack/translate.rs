//! Errors of the limits and of the token layer, as errors of the retry layer.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Method, Request, header::HOST};
use pin_project_lite::pin_project;
use tower::BoxError;
use tower_oidc_cc::{Origin, Rejection, TokenError, TokenSource};
use tower_service::Service;
use tower_tds_errors::{Error, GiveUp, Kind, Sent};
use tower_tds_limits::WaitCause;
use tower_tds_outcome::{Cause, Outcome, chain};

/// Converts the errors below the retry layer, as [`into_error`](crate::layers::into_error) does.
///
/// If a call ends while it waits for a token, the error names the token endpoint and the last
/// failed token request. A request with only a path goes to the origin of its layer, if there is
/// exactly one.
#[derive(Debug, Clone)]
pub struct IntoError<S> {
    inner: S,
    tokens: TokenSource,
    /// Origin of requests that have only a path.
    origin: Option<Arc<Origin>>,
}

pin_project! {
    /// Future of an [`IntoError`].
    ///
    /// # Cancel safety
    /// Dropping this future drops the inner one.
    #[derive(Debug)]
    pub struct IntoErrorFuture<F> {
        #[pin]
        inner: F,
        tokens: TokenSource,
    }
}

// === impl IntoError ===

impl<S> IntoError<S> {
    pub(crate) const fn new(inner: S, tokens: TokenSource, origin: Option<Arc<Origin>>) -> Self {
        Self {
            inner,
            tokens,
            origin,
        }
    }
}

impl<S, B> Service<Request<B>> for IntoError<S>
where
    S: Service<Request<B>, Error = tower_tds_limits::Error>,
{
    type Response = S::Response;
    type Error = Error;
    type Future = IntoErrorFuture<S::Future>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx).map_err(into_error)
    }

    #[inline]
    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if request.uri().authority().is_none()
            && let Some(origin) = &self.origin
        {
            *request.uri_mut() = origin.absolute(request.uri());
            // A bare connection does not add this header, which each request needs (RFC 9112,
            // section 3.2).
            if let Some(authority) = request.uri().authority()
                && let Ok(host) = HeaderValue::from_str(authority.as_str())
            {
                request.headers_mut().entry(HOST).or_insert(host);
            }
        }
        IntoErrorFuture {
            inner: self.inner.call(request),
            tokens: self.tokens.clone(),
        }
    }
}

// === impl IntoErrorFuture ===

impl<F, R> Future for IntoErrorFuture<F>
where
    F: Future<Output = Result<R, tower_tds_limits::Error>>,
{
    type Output = Result<R, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let polled = this.inner.poll(cx);
        polled.map_err(|error| named(error, this.tokens))
    }
}

/// Converts an error. If the call waited for a token, the new error names the endpoint and its last
/// error.
#[cold]
fn named(error: tower_tds_limits::Error, tokens: &TokenSource) -> Error {
    let waited_for_token = error.cause() == Some(WaitCause::Readiness);
    let error = into_error(error);
    if !waited_for_token {
        return error;
    }
    let health = tokens.health();
    let failed = health.last_error.as_ref().map(|error| format!(": {error}"));
    let failed = failed.unwrap_or_default();
    error.with_waited_for(format!("a token from {}{failed}", health.endpoint))
}

/// Converts the errors of the limits and of the token layer. An error of the service keeps its kind.
///
/// A call that the limits reject in the pause after a 429 has the kind of that 429. A call that
/// gets no permit for its socket in time has [`Kind::LimitTimeout`]. Retries after a 416, 423 or
/// 429 cost no budget, because [`RequestLimit`] delays them.
///
/// [`RequestLimit`]: tower_tds_limits::RequestLimit
///
/// # Examples
/// See [`layers`](crate::layers).
#[must_use]
#[cold]
pub fn into_error(error: tower_tds_limits::Error) -> Error {
    let below = match error.into_source() {
        Ok(below) => below,
        Err(limit) => return from_limits(&limit)(limit.into()),
    };
    match below.downcast::<tower_oidc_cc::Error>() {
        Ok(error) => from_bearer(*error),
        Err(error) => from_service(error),
    }
}

fn from_bearer(error: tower_oidc_cc::Error) -> Error {
    let rejection = error.rejection().cloned();
    match error.into_source() {
        Ok(below) => match rejection {
            Some(rejection) => from_refused(from_service(below), &rejection),
            None => from_service(below),
        },
        Err(error) => match error.token() {
            Some(token) => from_token(token.clone()),
            None => from_service(error.into()),
        },
    }
}

/// Converts an error of the service below, which may be that there was no permit for a socket in
/// time.
fn from_service(error: BoxError) -> Error {
    let error = Error::from(error);
    let limited = chain(&error).find_map(|link| link.downcast_ref().map(from_limits));
    match (limited, error.outcome()) {
        (Some(limited), _) => limited(error.into()),
        (
            None,
            Outcome::RateExceeded | Outcome::ConnectionsExceeded | Outcome::QuotaExceeded(_),
        ) => error.with_paced_retries(),
        (None, _) => error,
    }
}

/// After a refusal, the call is sent again once: at no cost if a newer token exists or was
/// requested for it, and for one retry of the budget if not, because one node of the service may
/// have erred. If the gateway could not check the token, the call is retried as in any outage.
fn from_refused(mut error: Error, rejection: &Rejection) -> Error {
    let is_about_token = matches!(
        error.kind(),
        Kind::InvalidToken | Kind::Unauthorized | Kind::MissingRole
    );
    if !is_about_token {
        return error;
    }
    let (is_worth_it, wait) = (rejection.is_worth_a_resend(), rejection.retry_after());
    if let Some(wait) = wait {
        error = error.with_retries_after(wait);
        if is_worth_it {
            error = error.with_paced_retries().with_waited_for("another token");
        }
    } else if is_worth_it {
        error = error.with_one_resend().with_waited_for("another token");
    }
    error
}

/// Reads an error of the limits, and returns a function that makes a typed error from a source.
fn from_limits(error: &tower_tds_limits::Error) -> impl FnOnce(BoxError) -> Error + use<> {
    let (wait, cause) = (error.retry_after(), error.cause());
    let is_final = error.is_deadline();
    let kind = if error.is_answer_timeout() || (is_final && !error.is_rejected()) {
        Kind::Timeout
    } else if !(error.is_rejected() && cause == Some(WaitCause::Pause)) {
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
    let waited_for = cause.map(|cause| match cause {
        WaitCause::Readiness => "a token".to_owned(),
        cause => cause.to_string(),
    });
    // A call that was rejected has not waited.
    let waited_for = waited_for.filter(|_| !(is_final && error.is_rejected()));
    move |source| {
        let mut error = Error::new(kind, source).with_sent(sent);
        if let Some(waited_for) = waited_for {
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
}

fn from_token(error: TokenError) -> Error {
    // The kind of the token request's own failure decides. Below the error's own cause, that of a
    // client shows that the request had no connection.
    let is_cause = |link: &&(dyn std::error::Error + 'static)| link.is::<Cause>();
    let met = match chain(&error).filter(is_cause).nth(1) {
        Some(_) => Cause::new(Outcome::Unsent, Some(error.clone().into())).into(),
        None => BoxError::from(error.clone()),
    };
    let met = Error::from(met).kind();
    let kind = if error.is_foreign_origin() {
        Kind::InvalidRequest
    } else if met == Kind::Tls {
        // Retries do not help with a wrong certificate.
        Kind::Tls
    } else if met == Kind::Rejected {
        Kind::TokenRefused
    } else if error.is_transient() || error.is_missing_credentials() {
        // Perhaps the credentials have not been written yet.
        Kind::TokenUnavailable
    } else {
        Kind::TokenRefused
    };
    let wait = error.retry_after();
    let endpoint = error.endpoint().and_then(|endpoint| endpoint.parse().ok());
    let advice = match (met, kind) {
        // Here the error has a better text of its own, about the proxy or about certificates.
        (Kind::Rejected, _) | (_, Kind::Tls) => None,
        _ if refused_tunnel(&error) => None,
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
    chain(error).any(|cause| cause.is::<Error>())
}

/// Longer pauses belong to a quota of an hour or a day: `Kind::QuotaExhausted`.
const SHORT_QUOTA: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
