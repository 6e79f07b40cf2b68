//! Spans and metrics of a call and of its attempts.

use std::sync::Arc;

use http::{Request, Response};
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Span, info_span};

use super::request::Attempt;
use crate::error::Error;

/// Name of a client.
pub(super) type Name = Option<Arc<str>>;

/// Record of a call, or of one of its attempts. If it is dropped before the end, it records a
/// cancellation.
pub(super) struct Record {
    pub(super) span: Span,
    name: Name,
    /// When the call began; `None` for an attempt.
    began: Option<Instant>,
    is_over: bool,
}

/// Creates a span with the fields of OpenTelemetry for a client, and others.
macro_rules! client_span {
    ($span:literal, $request:expr, $resends:expr, $($more:tt)*) => {
        info_span!(
            $span,
            otel.kind = "client",
            http.request.method = %$request.method(),
            http.request.resend_count = $resends,
            server.address = $request.uri().host(),
            server.port = $request.uri().port_u16(),
            url.path = $request.uri().path(),
            http.response.status_code = Empty,
            error.type = Empty,
            $($more)*
        )
    };
}

// === impl Record ===

impl Record {
    /// Begins the record of a call.
    pub(super) fn call<B>(request: &Request<B>, name: &Name, began: Instant) -> Self {
        let span = client_span!("tds.call", request, Empty, tds.client = name.as_deref());
        Self::new(span, name, Some(began))
    }

    /// Begins the record of an attempt. Layers below record their waits in its span:
    /// `tds.wait.cause` and `tds.wait.seconds`.
    pub(super) fn attempt<B>(request: &Request<B>, name: &Name) -> Self {
        let before = Attempt::of(request.extensions()).saturating_sub(1);
        let before = (before > 0).then_some(before);
        let span = client_span!(
            "tds.attempt",
            request,
            before,
            tds.wait.cause = Empty,
            tds.wait.seconds = Empty
        );
        Self::new(span, name, None)
    }

    fn new(span: Span, name: &Name, began: Option<Instant>) -> Self {
        Self {
            span,
            name: name.clone(),
            began,
            is_over: false,
        }
    }

    /// Records how the call or the attempt ended.
    pub(super) fn end<R>(mut self, ended: Result<&Response<R>, &Error>) {
        self.is_over = true;
        let attempts = match ended {
            Ok(response) => Attempt::of(response.extensions()),
            Err(error) => error.attempts(),
        };
        if self.began.is_some() && attempts > 1 {
            let before = attempts.saturating_sub(1);
            self.span.record("http.request.resend_count", before);
        }
        self.count(record(&self.span, ended));
    }

    fn count(&self, kind: &'static str) {
        match self.began {
            Some(began) => count_call(&self.name, kind, began),
            None => count_attempt(&self.name, kind),
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.is_over {
            self.span.record("error.type", CANCELLED);
            self.count(CANCELLED);
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

#[cfg(feature = "metrics")]
fn count_attempt(name: &Name, kind: &'static str) {
    metrics::counter!("tds_attempts_total", labels(name, Some(kind))).increment(1);
}

#[cfg(not(feature = "metrics"))]
const fn count_attempt(_: &Name, _: &'static str) {}

#[cfg(feature = "metrics")]
fn count_call(name: &Name, kind: &'static str, began: Instant) {
    metrics::counter!("tds_calls_total", labels(name, Some(kind))).increment(1);
    let took = crate::clock::now()
        .saturating_duration_since(began)
        .as_secs_f64();
    metrics::histogram!("tds_call_seconds", labels(name, None)).record(took);
}

#[cfg(not(feature = "metrics"))]
const fn count_call(_: &Name, _: &'static str, _: Instant) {}

/// Returns the labels of a metric: its kind, and the name of the client.
#[cfg(feature = "metrics")]
fn labels(name: &Name, kind: Option<&'static str>) -> Vec<metrics::Label> {
    let kind = kind.map(|kind| metrics::Label::from_static_parts("kind", kind));
    let name = name.clone().map(|name| metrics::Label::new("client", name));
    kind.into_iter().chain(name).collect()
}

/// Kind of a cancelled call or attempt.
const CANCELLED: &str = "cancelled";
