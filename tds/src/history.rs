//! Last ten minutes for the page: the rate of requests, and how users were served.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Sums since the start, at one instant.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sample {
    /// Requests that were sent to the service.
    granted: f64,
    /// Responses for users; how many of them did not wait for the service.
    served: f64,
    hits: f64,
    /// How many requests of users had a response within each time in seconds, the shortest first.
    within: Vec<(f64, f64)>,
}

/// One sample for each [`STEP`], the newest last. The lock is held for a few statements.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<VecDeque<Sample>>);

// === impl Sample ===

impl Sample {
    /// Reads the sums from the text for Prometheus, so that they are counted in one place.
    pub(crate) fn of(metrics: &str) -> Self {
        let mut sample = Self::default();
        for (series, value) in metrics.lines().filter_map(|line| line.rsplit_once(' ')) {
            let label = |name: &str| series.split_once(name)?.1.split('"').nth(1);
            let Ok(value) = value.parse::<f64>() else {
                continue;
            };
            match series.split('{').next() {
                Some("tds_granted_total") => sample.granted += value,
                Some("tds_users_requests_total") => match label("cache=") {
                    Some("hit" | "stale") => {
                        sample.hits += value;
                        sample.served += value;
                    }
                    Some("miss" | "join") => sample.served += value,
                    Some(_) | None => {}
                },
                Some("tds_users_seconds_bucket") => {
                    let end = label("le=").and_then(|end| end.parse().ok());
                    sample.within.extend(end.map(|end| (end, value)));
                }
                Some(_) | None => {}
            }
        }
        sample
    }
}

// === impl History ===

impl History {
    pub(crate) fn push(&self, sample: Sample) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push_back(sample);
        // Keeps twice what is shown, because the first rate needs the samples before it.
        let beyond = samples.len().saturating_sub(2 * SHOWN);
        samples.drain(..beyond);
    }

    /// Returns the requests per second at each step of the last ten minutes, averaged over the
    /// interval of the limit.
    pub(crate) fn rates(&self, per: Duration) -> Vec<f64> {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let steps = per.as_secs().div_ceil(STEP.as_secs());
        let steps = usize::try_from(steps).unwrap_or(SHOWN).clamp(1, SHOWN);
        let granted = |at: usize| samples.get(at).map_or(0.0, |sample| sample.granted);
        let seconds = (STEP * u32::try_from(steps).unwrap_or_default()).as_secs_f64();
        let shown = samples.len().saturating_sub(SHOWN)..samples.len();
        let rate = |at: usize| {
            // Nothing was sent before the start.
            let before = at.checked_sub(steps).map_or(0.0, granted);
            (granted(at) - before) / seconds
        };
        shown.map(rate).collect()
    }

    /// Returns how users were served in the last ten minutes: the part that did not wait for the
    /// service, and the seconds within which 50 % and 99 % of the requests had a response.
    pub(crate) fn users(&self) -> [Option<f64>; 3] {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = samples.back().cloned().unwrap_or_default();
        let before = samples.len().checked_sub(SHOWN + 1);
        let before = before.and_then(|at| samples.get(at)).cloned();
        let before = before.unwrap_or_default();
        drop(samples);
        let within = newest.within.iter().enumerate().map(|(at, (end, count))| {
            let before = before.within.get(at).map_or(0.0, |(_, before)| *before);
            (*end, count - before)
        });
        let within: Vec<_> = within.collect();
        let served = newest.served - before.served;
        let hits = (served > 0.0).then(|| (newest.hits - before.hits) / served);
        [hits, quantile(&within, 0.5), quantile(&within, 0.99)]
    }
}

/// Returns the seconds within which this part of the requests had a response, as
/// `histogram_quantile` computes it.
fn quantile(within: &[(f64, f64)], part: f64) -> Option<f64> {
    let all = within
        .last()
        .map(|(_, all)| *all)
        .filter(|all| *all > 0.0)?;
    let mut before = (0.0, 0.0);
    for (end, count) in within {
        if *count >= part * all {
            let inside = (part * all - before.1) / (count - before.1);
            let length = if end.is_finite() { end - before.0 } else { 0.0 };
            return Some(before.0 + length * inside);
        }
        before = (*end, *count);
    }
    None
}

/// Time between two samples.
pub(crate) const STEP: Duration = Duration::from_secs(5);

/// Number of samples in ten minutes.
pub(crate) const SHOWN: usize = 120;

#[cfg(test)]
mod tests;
