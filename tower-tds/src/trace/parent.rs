//! The trace that an attempt belongs to, as W3C Trace Context has it in two headers.

use http::{HeaderMap, HeaderName, HeaderValue, header::Entry};
use opentelemetry::{TraceFlags, trace::TraceContextExt};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Names the current span, if it is of a trace and its caller has not named another.
pub(super) fn name_in(headers: &mut HeaderMap) {
    let span = Span::current();
    if span.is_none() {
        return;
    }
    let Ok(Entry::Vacant(parent)) = headers.try_entry(TRACEPARENT) else {
        return;
    };
    let context = span.context();
    let span = context.span();
    let named = span.span_context();
    if !named.is_valid() {
        return;
    }
    let flags = named.trace_flags() & TraceFlags::SAMPLED;
    let value = format!("00-{}-{}-{flags:02x}", named.trace_id(), named.span_id());
    let Ok(value) = HeaderValue::try_from(value) else {
        return;
    };
    parent.insert(value);
    // One without a traceparent is of nothing (section 3.3).
    match HeaderValue::try_from(named.trace_state().header()) {
        Ok(state) if !state.is_empty() => headers.insert(TRACESTATE, state),
        Ok(_) | Err(_) => headers.remove(TRACESTATE),
    };
}

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
