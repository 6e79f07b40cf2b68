//! Outages: a line when one begins, one each minute for as long as it lasts, and one at its end.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::Instant;

use crate::{
    ending::Trouble,
    exit::Exit,
    output::{counted, rough},
};

/// Outage that has not ended.
#[derive(Debug)]
pub(crate) struct Outage {
    begun: Instant,
    /// When the next line about it is due.
    line_at: Instant,
    failures: u64,
    /// Text of the last failure.
    line: String,
}

/// Outages of feeds, and when each feed last sent a successful request.
#[derive(Debug)]
pub(crate) struct Outages {
    last: Vec<Alike>,
    came: Vec<Option<Instant>>,
}

/// Feeds that fail for the same reason.
#[derive(Debug)]
struct Alike {
    outage: Outage,
    exit: Exit,
    /// Whether the reason concerns no other feed.
    is_of_one: bool,
    /// Feeds that have not succeeded since their failure.
    feeds: BTreeSet<usize>,
    /// When the last feed joined.
    joined: Instant,
}

// === impl Outage ===

impl Outage {
    pub(crate) const fn begin(now: Instant) -> Self {
        Self {
            begun: now,
            line_at: now,
            failures: 0,
            line: String::new(),
        }
    }

    /// Records a failure. Returns a line at the beginning, and once a minute.
    pub(crate) fn failed(&mut self, line: &str, now: Instant) -> Option<String> {
        self.failures += 1;
        line.clone_into(&mut self.line);
        if now < self.line_at {
            return None;
        }
        let line = match self.failures {
            1 => format!("outage: {line}"),
            _ => self.line(now),
        };
        self.line_at = now + MINUTE;
        Some(line)
    }

    pub(crate) fn lasted(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.begun)
    }

    /// Returns the line of an outage that goes on.
    pub(crate) fn line(&self, now: Instant) -> String {
        format!("outage for {}: {}", rough(self.lasted(now)), self.line)
    }

    /// Returns the line of its end.
    pub(crate) fn over(&self, now: Instant, why: &str) -> String {
        let (lasted, failures) = (rough(self.lasted(now)), counted(self.failures, "failure"));
        format!("outage over after {lasted} and {failures}: {why}")
    }
}

// === impl Outages ===

impl Outages {
    pub(crate) fn of(feeds: usize) -> Self {
        Self {
            last: Vec::new(),
            came: vec![None; feeds],
        }
    }

    /// Records a failure. Returns a line if an outage begins.
    pub(crate) fn failed(&mut self, feed: usize, trouble: &Trouble, line: &str) -> Option<String> {
        let (now, exit) = (Instant::now(), trouble.exit());
        let alike = |is: &dyn Fn(&Alike) -> bool| {
            let mut last = self.last.iter();
            last.position(|outage| outage.exit == exit && is(outage))
        };
        let known = alike(&|outage| outage.feeds.contains(&feed));
        let is_of_one = trouble.is_of_one();
        let at = known.or_else(|| alike(&|outage| !is_of_one && self.is_open(outage)));
        if let Some(alike) = at.and_then(|at| self.last.get_mut(at)) {
            drop(alike.outage.failed(line, now));
            if alike.feeds.insert(feed) {
                alike.joined = now;
            }
            return None;
        }
        let mut outage = Outage::begin(now);
        let begun = outage.failed(line, now);
        self.last.push(Alike {
            outage,
            exit,
            is_of_one,
            feeds: BTreeSet::from([feed]),
            joined: now,
        });
        begun
    }

    /// Whether a feed that fails now joins this outage.
    ///
    /// If all other feeds have succeeded since the last feed joined, the cause concerns only the
    /// feeds that failed, and a further failure has another cause.
    fn is_open(&self, alike: &Alike) -> bool {
        let is_away = |feed| self.last.iter().any(|last| last.feeds.contains(&feed));
        let mut came = self.came.iter().enumerate();
        !alike.is_of_one && came.any(|(feed, came)| *came <= Some(alike.joined) && !is_away(feed))
    }

    /// Records a success, and returns a line for each outage that it ends.
    pub(crate) fn succeeded(&mut self, feed: usize, sent_at: Instant, name: &str) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(came) = self.came.get_mut(feed) {
            *came = Some(sent_at);
        }
        self.last.retain_mut(|alike| {
            let last = alike.feeds.remove(&feed) && alike.feeds.is_empty();
            let line = || {
                alike
                    .outage
                    .over(Instant::now(), &format!("{name} is back"))
            };
            lines.extend(last.then(line));
            !last
        });
        lines
    }

    /// Returns the exit of a job at the end of its rounds.
    pub(crate) fn exit(&self) -> Exit {
        let came = self.came.iter().any(Option::is_some);
        Exit::of_all(self.last.iter().map(|alike| alike.exit), came)
    }
}

const MINUTE: Duration = Duration::from_secs(60);
