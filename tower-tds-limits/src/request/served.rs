//! Named readings of a gateway's own time: how long it had the request before it answered.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};

/// Where a service says for how long it, or what stands behind it, has had a request.
///
/// The service counted the request before that, so the proof is earlier than the answer by as much,
/// and a slow answer costs no more of the quota than a quick one. Each reading assumes that the
/// gateway counts a request *before* it passes it on; where something behind it counts, or counts
/// when it has answered, use none. A value is believed only if it is a number that is not negative,
/// and not longer than the whole answer took; otherwise the answer itself is the proof.
///
/// Any proxy on the way, and the service itself, can write these headers: use them only where you
/// trust whoever answers. What says it otherwise is read by a [`Feedback`](crate::Feedback) of your own, as
/// [`Outcome::Served`](crate::Outcome::Served).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Served {
    /// `X-Kong-Upstream-Latency`, for how long Kong waited for the service behind it. Unsafe where a plugin
    /// counts after the answer (`header_filter`, `log`).
    Kong,
    /// `x-envoy-upstream-service-time`, the same of Envoy, with the network behind it. Unsafe where the rate
    /// limit stands in another proxy behind this one.
    Envoy,
    /// The duration of the metric of this name in `Server-Timing` (W3C Server Timing, section 2). Unsafe where
    /// that includes time before the count.
    ServerTiming(&'static str),
}

// === impl Served ===

impl Served {
    pub(super) fn read(self, headers: &HeaderMap) -> Option<Duration> {
        let header = match self {
            Self::Kong => "x-kong-upstream-latency",
            Self::Envoy => "x-envoy-upstream-service-time",
            Self::ServerTiming(metric) => return read_metric(headers, metric),
        };
        let mut values = headers.get_all(header).iter();
        let value = values.next()?;
        // Of two, nobody knows which is whose.
        values.next().is_none().then(|| millis(text(value)?))?
    }
}

fn read_metric(headers: &HeaderMap, name: &str) -> Option<Duration> {
    let values = headers.get_all("server-timing").iter();
    let metrics = values.filter_map(text).flat_map(|value| value.split(','));
    let mut named = metrics.filter_map(|metric| {
        let mut parts = metric.split(';').map(str::trim);
        (parts.next()? == name).then_some(parts)
    });
    let mut parts = named.next()?;
    let duration = parts.find_map(|part| part.strip_prefix("dur="));
    named.next().is_none().then(|| millis(duration?))?
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()
}

/// Milliseconds, perhaps with a fraction; nothing that is negative, no number, or more than a day.
fn millis(value: &str) -> Option<Duration> {
    let millis: f64 = value.trim().trim_matches('"').parse().ok()?;
    let seconds = millis / 1_000.0;
    (0.0..=LONGEST)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

/// A day, in seconds.
const LONGEST: f64 = 86_400.0;

#[cfg(test)]
mod tests;
