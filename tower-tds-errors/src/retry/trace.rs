//! Spans and metrics of a call and of its attempts.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, Uri};
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Span, info_span};

use super::request::Attempt;
use crate::clock;
use crate::error::Error;

/// Name of a client.
pub(super) type Name = Option<Arc<str>>;

/// Record of a call, or of one of its attempts. If it is dropped before the end, it records a
/// cancellation.
pub(super) struct CallRecord {
    pub(super) span: Span,
    name: Name,
    /// When the call began; `None` for an attempt.
    began: Option<Instant>,
    is_over: bool,
}

/// Creates a span with the fields of OpenTelemetry for a client, and others.
macro_rules! client_span {
    ($span:literal, $method:expr, $uri:expr, $resends:expr, $($more:tt)*) => {
        info_span!(
            $span,
            otel.kind = "client",
            http.request.method = %$method,
            http.request.resend_count = $resends,
            server.address = $uri.host(),
            server.port = $uri.port_u16(),
            url.path = $uri.path(),
            http.response.status_code = Empty,
            error.type = Empty,
            $($more)*
        )
    };
}

// === impl CallRecord ===

impl CallRecord {
    /// Begins the record of a call.
    pub(super) fn call<B>(request: &Request<B>, name: &Name, began: Instant) -> Self {
        let span = client_span!(
            "tds.call",
            request.method(),
            request.uri(),
            Empty,
            tds.client = name.as_deref()
        );
        Self {
            span,
            name: name.clone(),
            began: Some(began),
            is_over: false,
        }
    }

    /// Begins the record of an attempt. Layers below record their waits in its span:
    /// `tds.wait.cause` and `tds.wait.seconds`.
    pub(super) fn attempt(method: &Method, uri: &Uri, number: u32, name: &Name) -> Self {
        let before = number.saturating_sub(1);
        let before = (before > 0).then_some(before);
        let span = client_span!(
            "tds.attempt",
            method,
            uri,
            before,
            tds.wait.cause = Empty,
            tds.wait.seconds = Empty
        );
        Self {
            span,
            name: name.clone(),
            began: None,
            is_over: false,
        }
    }

    /// Records how the call or the attempt ended.
    pub(super) fn end<R>(&mut self, ended: Result<&Response<R>, &Error>) {
        self.is_over = true;
        if self.span.is_disabled() && !cfg!(feature = "metrics") {
            return;
        }
        let (attempts, status, kind) = match ended {
            Ok(response) => {
                let attempts = Attempt::of(response.extensions());
                (attempts, Some(response.status()), "success")
            }
            Err(error) => {
                let kind = error.kind().as_str();
                self.span.record("error.type", kind);
                (error.attempts(), error.status(), kind)
            }
        };
        if self.began.is_some() && attempts > 1 {
            let before = attempts.saturating_sub(1);
            self.span.record("http.request.resend_count", before);
        }
        if let Some(status) = status {
            self.span
                .record("http.response.status_code", status.as_u16());
        }
        self.count(kind);
    }

    /// Returns how long the call has taken; `None` for an attempt.
    pub(super) fn elapsed(&self) -> Option<Duration> {
        let began = self.began?;
        Some(clock::now().saturating_duration_since(began))
    }

    fn count(&self, kind: &'static str) {
        let name = &self.name;
        #[cfg(feature = "metrics")]
        {
            let took = self.elapsed();
            let total = match took {
                Some(_) => "tds_calls_total",
                None => "tds_attempts_total",
            };
            metrics::counter!(total, labels(name, Some(kind))).increment(1);
            if let Some(took) = took {
                metrics::histogram!("tds_call_seconds", labels(name, None))
                    .record(took.as_secs_f64());
            }
        }
        #[cfg(not(feature = "metrics"))]
        let _ = (name, kind);
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        if !self.is_over {
            self.span.record("error.type", CANCELLED);
            self.count(CANCELLED);
        }
    }
}

/// Returns the labels of a metric: its kind, and the name of the client.
#[cfg(feature = "metrics")]
fn labels(name: &Name, kind: Option<&'static str>) -> Vec<metrics::Label> {
    let kind = kind.map(|kind| metrics::Label::from_static_parts("kind", kind));
    let name = name.clone().map(|name| metrics::Label::new("client", name));
    kind.into_iter().chain(name).collect()
}

/// Kind of a cancelled call or attempt.
const CANCELLED: &str = "cancelled";
