//! Outages: one line when one begins, however many feeds it strikes, and one when it is over.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use crate::{exit::Exit, progress::Clock};

/// The outages that last.
#[derive(Debug, Default)]
pub(crate) struct Outages {
    last: BTreeMap<Cause, Outage>,
    /// Whether anything came, ever.
    came: bool,
}

/// Whatever breaks the network is one cause; what is wrong with one feed is that feed's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    All(u8),
    One(usize),
}

#[derive(Debug)]
struct Outage {
    exit: Exit,
    begun: Instant,
    failures: u64,
    /// The feeds that have not come since.
    feeds: BTreeSet<usize>,
}

// === impl Outages ===

impl Outages {
    /// Says the line of an outage that begins with this failure.
    pub(crate) fn failed(&mut self, feed: usize, exit: Exit, line: &str) -> Option<String> {
        let cause = match exit {
            Exit::SomeFailed | Exit::Whole | Exit::Usage => Cause::One(feed),
            Exit::Quota | Exit::Credentials | Exit::Unreachable => Cause::All(exit.code()),
        };
        let mut told = None;
        let outage = self.last.entry(cause).or_insert_with(|| {
            told = Some(format!("outage: {line}"));
            Outage {
                exit,
                begun: Instant::now(),
                failures: 0,
                feeds: BTreeSet::new(),
            }
        });
        outage.failures = outage.failures.saturating_add(1);
        outage.feeds.insert(feed);
        told
    }

    /// Says the line of each outage that is over with this success.
    pub(crate) fn succeeded(&mut self, feed: usize, name: &str) -> Vec<String> {
        let mut told = Vec::new();
        self.came = true;
        self.last.retain(|_, outage| {
            let last = outage.feeds.remove(&feed) && outage.feeds.is_empty();
            if last {
                let (lasted, failures) = (Clock(outage.begun.elapsed()), outage.failures);
                told.push(format!(
                    "outage over after {lasted} and {failures} failures: {name} is there"
                ));
            }
            !last
        });
        told
    }

    /// By what a job ends whose rounds are over: if nothing came and all for one reason, by that.
    pub(crate) fn exit(&self) -> Exit {
        let mut lasting = self.last.values().map(|outage| outage.exit);
        match lasting.next() {
            None => Exit::Whole,
            Some(first) if !self.came && lasting.all(|exit| exit == first) => first,
            Some(_) => Exit::SomeFailed,
        }
    }
}
