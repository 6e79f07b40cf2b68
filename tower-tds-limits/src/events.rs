//! Log events, metrics and span fields of a limiter. No lock is held while they are emitted.

use std::time::Duration;

use tracing::Span;

use crate::{error::WaitCause, limits::Quota};

/// Field of the current span that holds the [cause](WaitCause::as_str) of a call's last wait.
const WAIT_CAUSE_FIELD: &str = "tds.wait.cause";

/// Field of the current span that holds the length of a call's last wait, in seconds.
const WAIT_SECONDS_FIELD: &str = "tds.wait.seconds";

/// Logs the quota that applies from now on. `certificate` is the most requests that the service can
/// have counted in one interval.
pub(crate) fn lowered(quota: Quota, certificate: u64) {
    tracing::warn!(
        requests = quota.requests(),
        per = ?quota.per(),
        certificate,
        "too many requests (423): nothing is sent for 1 s, then `requests` in each `per`, evenly \
         spaced, until ten minutes after the last 423"
    );
}

pub(crate) fn restored() {
    tracing::info!("no 423 for ten minutes: the whole quota holds again");
}

pub(crate) fn paused(wait: Duration) {
    tracing::warn!(?wait, "quota used up (429): calls of this stack wait");
}

pub(crate) fn connections_refused() {
    tracing::warn!("too many connections (416): does another client share this address?");
}

/// Records the end of a call's wait, with a permit or without one.
#[cold]
pub(crate) fn waited(cause: WaitCause, waited: Duration) {
    let span = Span::current();
    if !span.is_none() {
        span.record(WAIT_CAUSE_FIELD, cause.as_str());
        span.record(WAIT_SECONDS_FIELD, waited.as_secs_f64());
    }
    if waited >= LONG {
        tracing::debug!(cause = cause.as_str(), ?waited, "waited for {cause}");
    }
    #[cfg(feature = "metrics")]
    metrics::histogram!("tds_wait_seconds", "cause" => cause.as_str()).record(waited.as_secs_f64());
}

/// Shortest wait that is logged, about a usual response time.
const LONG: Duration = Duration::from_millis(100);
