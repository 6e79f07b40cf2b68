//! The spans and the metrics of a call and of its attempts.

use std::sync::Arc;

use http::{Request, Response};
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::span::EnteredSpan;
use tracing::{Span, info_span};

use super::request::Attempt;
use crate::clock;
use crate::error::Error;

/// The name of a client.
pub(super) type Name = Option<Arc<str>>;

/// The record of a call, or `None` without a subscriber and without metrics.
pub(super) struct Trace(Option<Box<Open>>);

/// A call that has not ended. Its drop records that it was cancelled.
struct Open {
    call: Span,
    /// `Some` while an attempt is in flight.
    attempt: Option<Span>,
    began: Instant,
    name: Name,
    is_over: bool,
}

// === impl Trace ===

impl Trace {
    /// Begins the record of a call.
    #[inline]
    pub(super) fn begin<B>(request: &Request<B>, name: &Name, began: Instant) -> Self {
        let call = info_span!(
            "tds.call",
            otel.kind = "client",
            tds.client = name.as_deref(),
            http.request.method = %request.method(),
            http.request.resend_count = Empty,
            server.address = request.uri().host(),
            server.port = request.uri().port_u16(),
            url.path = request.uri().path(),
            http.response.status_code = Empty,
            error.type = Empty,
        );
        if call.is_disabled() && !cfg!(feature = "metrics") {
            return Self(None);
        }
        Self(Some(Box::new(Open::new(call, name, began))))
    }

    /// Begins the record of an attempt, inside the call's span. The layers below record their waits
    /// in the attempt's span: `tds.wait.cause` and `tds.wait.seconds`.
    #[inline]
    pub(super) fn attempt<B>(&mut self, request: &Request<B>) {
        let resent = || {
            let before = Attempt::of(request.extensions()).checked_sub(1)?;
            (before > 0).then_some(before)
        };
        let attempt = info_span!(
            "tds.attempt",
            otel.kind = "client",
            http.request.method = %request.method(),
            http.request.resend_count = resent(),
            server.address = request.uri().host(),
            server.port = request.uri().port_u16(),
            url.path = request.uri().path(),
            http.response.status_code = Empty,
            error.type = Empty,
            tds.wait.cause = Empty,
            tds.wait.seconds = Empty,
        );
        if let Some(open) = &mut self.0 {
            open.attempt = Some(attempt);
        } else if !attempt.is_disabled() {
            let mut open = Open::new(Span::none(), &None, clock::now());
            open.attempt = Some(attempt);
            self.0 = Some(Box::new(open));
        }
    }

    /// Whether something is recorded.
    pub(super) const fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Enters the span of the call, if it is enabled.
    #[inline]
    pub(super) fn enter_call(&self) -> Option<EnteredSpan> {
        self.0.as_ref().map(|open| open.call.clone().entered())
    }

    /// Enters the span of the attempt, if it is enabled.
    #[inline]
    pub(super) fn enter_attempt(&self) -> Option<EnteredSpan> {
        let attempt = self.0.as_ref()?.attempt.as_ref()?;
        Some(attempt.clone().entered())
    }

    /// Records the end of an attempt: a response, an error, or neither if it was dropped.
    #[inline]
    pub(super) fn attempt_ended<R>(&mut self, ended: Option<Result<&Response<R>, &Error>>) {
        if let Some(open) = &mut self.0 {
            open.attempt_ended(ended);
        }
    }

    /// Records the end of the call.
    #[inline]
    pub(super) fn call_ended<R>(&mut self, ended: Result<&Response<R>, &Error>) {
        if let Some(open) = &mut self.0 {
            open.call_ended(ended);
            self.0 = None;
        }
    }
}

// === impl Open ===

impl Open {
    fn new(call: Span, name: &Name, began: Instant) -> Self {
        Self {
            call,
            attempt: None,
            began,
            name: name.clone(),
            is_over: false,
        }
    }

    #[cold]
    fn attempt_ended<R>(&mut self, ended: Option<Result<&Response<R>, &Error>>) {
        if let Some(attempt) = self.attempt.take() {
            let kind = ended.map_or_else(|| cancelled(&attempt), |ended| record(&attempt, ended));
            count_attempt(&self.name, kind);
        }
    }

    #[cold]
    fn call_ended<R>(&mut self, ended: Result<&Response<R>, &Error>) {
        let attempts = match ended {
            Ok(response) => Attempt::of(response.extensions()),
            Err(error) => error.attempts(),
        };
        if attempts > 1 {
            let before = attempts.saturating_sub(1);
            self.call.record("http.request.resend_count", before);
        }
        self.is_over = true;
        count_call(&self.name, record(&self.call, ended), self.began);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.attempt_ended::<()>(None);
        if !self.is_over {
            count_call(&self.name, cancelled(&self.call), self.began);
        }
    }
}

/// Records an outcome. Returns its name: `success`, or the kind of the error.
fn record<R>(span: &Span, ended: Result<&Response<R>, &Error>) -> &'static str {
    let (status, kind) = match ended {
        Ok(response) => (Some(response.status()), "success"),
        Err(error) => {
            let kind = error.kind().as_str();
            span.record("error.type", kind);
            (error.status(), kind)
        }
    };
    if let Some(status) = status {
        span.record("http.response.status_code", status.as_u16());
    }
    kind
}

fn cancelled(span: &Span) -> &'static str {
    span.record("error.type", CANCELLED);
    CANCELLED
}

#[cfg(feature = "metrics")]
fn count_attempt(name: &Name, kind: &'static str) {
    metrics::counter!("tds_attempts_total", labels(name, Some(kind))).increment(1);
}

#[cfg(not(feature = "metrics"))]
const fn count_attempt(_: &Name, _: &'static str) {}

#[cfg(feature = "metrics")]
fn count_call(name: &Name, kind: &'static str, began: Instant) {
    metrics::counter!("tds_calls_total", labels(name, Some(kind))).increment(1);
    let took = clock::now().saturating_duration_since(began).as_secs_f64();
    metrics::histogram!("tds_call_seconds", labels(name, None)).record(took);
}

#[cfg(not(feature = "metrics"))]
const fn count_call(_: &Name, _: &'static str, _: Instant) {}

/// The labels of a metric: its kind, and the name of the client.
#[cfg(feature = "metrics")]
fn labels(name: &Name, kind: Option<&'static str>) -> Vec<metrics::Label> {
    let kind = kind.map(|kind| metrics::Label::from_static_parts("kind", kind));
    let name = name.clone().map(|name| metrics::Label::new("client", name));
    kind.into_iter().chain(name).collect()
}

/// The kind of a cancelled call or attempt.
const CANCELLED: &str = "cancelled";
