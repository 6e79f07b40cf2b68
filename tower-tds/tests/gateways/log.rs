//! The access log of a gateway, and figures from it. It shares no code with the limiter.

use std::{
    fmt::{self, Display},
    time::Duration,
};

use crate::{audit, gateway::Kind, stranger::STRANGER};

/// The requests of a run, by the time at which the gateway saw them.
#[derive(Debug)]
pub(crate) struct Log {
    lines: Vec<Line>,
}

/// One request, in milliseconds of the gateway's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    pub(crate) at: i64,
    pub(crate) ended: i64,
    pub(crate) status: u16,
    /// The client's sockets at the end of the request.
    pub(crate) sockets: u32,
}

// === impl Line ===

impl Line {
    /// Reads status, time, time taken, sockets, and the client; times in milliseconds, or in seconds with three decimals.
    /// Returns `None` for a line of the stranger.
    pub(crate) fn read(line: &str, kind: Kind) -> Option<Self> {
        let mut words = line.split(' ');
        let millis = |time: &str| time.replace('.', "").parse::<i64>().ok();
        let status = words.next()?.parse().ok()?;
        let (time, took) = (millis(words.next()?)?, millis(words.next()?)?);
        // nginx writes the time of the end, and HAProxy that of the count.
        let at = match kind {
            Kind::Nginx { .. } => time - took,
            Kind::Haproxy => time,
        };
        let line = Self {
            at,
            ended: at + took,
            status,
            sockets: words.next()?.parse().ok()?,
        };
        (words.next() != Some(STRANGER)).then_some(line)
    }
}

// === impl Log ===

impl Log {
    pub(crate) fn new(mut lines: Vec<Line>) -> Self {
        lines.sort_by_key(|line| line.at);
        Self { lines }
    }

    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// The end of the last request in the log.
    pub(crate) fn last(&self) -> Option<i64> {
        self.lines.iter().map(|line| line.ended).max()
    }

    /// The requests that began after that.
    pub(crate) fn since(&self, at: i64) -> Self {
        Self::new(self.lines.iter().copied().filter(|l| l.at > at).collect())
    }

    pub(crate) fn count(&self, status: u16) -> usize {
        self.lines.iter().filter(|l| l.status == status).count()
    }

    pub(crate) fn most_sockets(&self) -> u32 {
        let sockets = self.lines.iter().map(|line| line.sockets);
        sockets.max().unwrap_or_default()
    }

    /// When the requests were counted, from the first on.
    fn times(&self) -> Vec<Duration> {
        let begin = self.lines.first().map_or(0, |line| line.at);
        let since = |line: &Line| u64::try_from(line.at - begin).expect("they are sorted");
        let times = self.lines.iter().map(since);
        times.map(Duration::from_millis).collect()
    }

    /// The most requests in any half-open second.
    pub(crate) fn largest_second(&self) -> usize {
        audit::fullest_interval(&self.times(), SECOND)
    }

    /// The largest estimate of a sliding-window counter at any request, for any start of its
    /// windows. The clock has milliseconds, so it is a number of thousandths.
    pub(crate) fn largest_estimate(&self) -> f64 {
        let largest = audit::fullest_counter(&self.times(), SECOND);
        (largest * 1000.0).round() / 1000.0
    }

    /// Requests a second, from the first to the last.
    pub(crate) fn rate(&self) -> f64 {
        match (self.lines.first(), self.lines.last()) {
            (Some(first), Some(last)) if last.at > first.at => {
                (self.lines.len() - 1) as f64 * 1000.0 / (last.at - first.at) as f64
            }
            _ => 0.0,
        }
    }

    /// The average share of this many sockets that had a request in service.
    ///
    /// It is taken from the time when there was a request for each of them to the last request,
    /// because the sockets cannot be full before and after that.
    pub(crate) fn occupied(&self, sockets: usize) -> f64 {
        let (Some(from), Some(to)) = (self.lines.get(sockets - 1), self.lines.last()) else {
            return 0.0;
        };
        if to.at == from.at {
            return 0.0;
        }
        let served = |line: &Line| (line.ended.min(to.at) - line.at.max(from.at)).max(0);
        let served: i64 = self.lines.iter().map(served).sum();
        served as f64 / (sockets as i64 * (to.at - from.at)) as f64
    }
}

impl Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for status in [200, 423, 416] {
            write!(f, "{} x {status}, ", self.count(status))?;
        }
        let (estimate, second) = (self.largest_estimate(), self.largest_second());
        write!(
            f,
            "at most {estimate:.2} in any alignment, {second} in a second, "
        )?;
        write!(f, "{} sockets", self.most_sockets())
    }
}

const SECOND: Duration = Duration::from_secs(1);
