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
/// | reading | header | what it says | unsafe where |
/// |---|---|---|---|
/// | [`kong`](Self::kong) | `X-Kong-Upstream-Latency`, ms | how long Kong waited for the service behind it | a plugin counts after the answer (`header_filter`, `log`) |
/// | [`envoy`](Self::envoy) | `x-envoy-upstream-service-time`, ms | the same of Envoy, with the network behind it | the rate limit stands in another proxy behind this one |
/// | [`server_timing`](Self::server_timing) | `Server-Timing`, the metric of that name, ms | whatever that metric is documented to be | it includes time before the count |
/// | [`by`](Self::by) | any | what a function reads | it reads more than the time after the count |
///
/// Any proxy on the way, and the service itself, can write these headers: use them only where you
/// trust whoever answers.
#[derive(Debug, Clone, Copy)]
pub struct Served(Reading);

#[derive(Debug, Clone, Copy)]
enum Reading {
    Millis(&'static str),
    Metric(&'static str),
    By(fn(&HeaderMap) -> Option<Duration>),
}

// === impl Served ===

impl Served {
    /// Kong's `X-Kong-Upstream-Latency`.
    #[must_use]
    pub const fn kong() -> Self {
        Self(Reading::Millis("x-kong-upstream-latency"))
    }

    /// Envoy's `x-envoy-upstream-service-time`.
    #[must_use]
    pub const fn envoy() -> Self {
        Self(Reading::Millis("x-envoy-upstream-service-time"))
    }

    /// The duration of one metric of `Server-Timing` (W3C Server Timing, section 2), by its name.
    #[must_use]
    pub const fn server_timing(metric: &'static str) -> Self {
        Self(Reading::Metric(metric))
    }

    /// What `read` finds in the headers.
    #[must_use]
    pub const fn by(read: fn(&HeaderMap) -> Option<Duration>) -> Self {
        Self(Reading::By(read))
    }

    pub(super) fn read(self, headers: &HeaderMap) -> Option<Duration> {
        match self.0 {
            Reading::By(read) => read(headers),
            Reading::Millis(name) => {
                let mut values = headers.get_all(name).iter();
                let value = values.next()?;
                // Of two, nobody knows which is whose.
                values.next().is_none().then(|| millis(text(value)?))?
            }
            Reading::Metric(name) => {
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
        }
    }
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
