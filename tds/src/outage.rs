//! Outages of feeds: one line when an outage begins, and one when its last feed is back.

use std::collections::BTreeSet;

use tokio::time::Instant;

use crate::{
    exit::Exit,
    output::{counted, rough},
};

/// Outages that have not ended, and when each feed last sent a successful request.
#[derive(Debug)]
pub(crate) struct Outages {
    last: Vec<Outage>,
    came: Vec<Option<Instant>>,
}

/// Feeds that fail for the same reason.
#[derive(Debug)]
struct Outage {
    exit: Exit,
    begun: Instant,
    failures: u64,
    /// Feeds that have not succeeded since their failure.
    feeds: BTreeSet<usize>,
    /// When the last feed joined.
    joined: Instant,
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
    pub(crate) fn failed(&mut self, feed: usize, exit: Exit, line: &str) -> Option<String> {
        let now = Instant::now();
        let alike = |is: &dyn Fn(&Outage) -> bool| {
            let mut last = self.last.iter();
            last.position(|outage| outage.exit == exit && is(outage))
        };
        let known = alike(&|outage| outage.feeds.contains(&feed));
        let at = known.or_else(|| alike(&|outage| self.is_open(outage)));
        if let Some(outage) = at.and_then(|at| self.last.get_mut(at)) {
            outage.failures += 1;
            if outage.feeds.insert(feed) {
                outage.joined = now;
            }
            return None;
        }
        self.last.push(Outage {
            exit,
            begun: now,
            failures: 1,
            feeds: BTreeSet::from([feed]),
            joined: now,
        });
        Some(format!("outage: {line}"))
    }

    /// Whether a feed that fails now joins this outage.
    ///
    /// If all other feeds have succeeded since the last feed joined, the cause concerns only the
    /// feeds that failed, and a further failure has another cause.
    fn is_open(&self, outage: &Outage) -> bool {
        let is_away = |feed| self.last.iter().any(|last| last.feeds.contains(&feed));
        let mut came = self.came.iter().enumerate();
        let is_of_one = matches!(outage.exit, Exit::SomeFailed | Exit::Whole | Exit::Usage);
        !is_of_one && came.any(|(feed, came)| *came <= Some(outage.joined) && !is_away(feed))
    }

    /// Records a success, and returns a line for each outage that it ends.
    pub(crate) fn succeeded(&mut self, feed: usize, sent_at: Instant, name: &str) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(came) = self.came.get_mut(feed) {
            *came = Some(sent_at);
        }
        self.last.retain_mut(|outage| {
            let last = outage.feeds.remove(&feed) && outage.feeds.is_empty();
            if last {
                let lasted = rough(outage.begun.elapsed());
                let failures = counted(outage.failures, "failure");
                lines.push(format!(
                    "outage over after {lasted} and {failures}: {name} is back"
                ));
            }
            !last
        });
        lines
    }

    /// Returns the exit of a job at the end of its rounds.
    pub(crate) fn exit(&self) -> Exit {
        let came = self.came.iter().any(Option::is_some);
        Exit::of_all(self.last.iter().map(|outage| outage.exit), came)
    }
}
