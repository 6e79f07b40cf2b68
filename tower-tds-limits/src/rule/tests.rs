//! Requests under delay, loss and cancellation, for the properties of the rules.

use std::{
    ops::{Add, Range},
    time::Duration,
};

use proptest::{collection::vec, prelude::*};

use crate::clock::{Tick, nanos};

/// Fate of a request after its grant.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fate {
    Proven(Duration),
    Withdrawn(Duration),
}

/// Requests that are neither proven nor withdrawn yet.
#[derive(Default)]
pub(super) struct UnderWay(Vec<(Tick, Event)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    Withdrawn,
    Proven,
}

// === impl Tick ===

impl Add<Duration> for Tick {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        self.plus(nanos(time))
    }
}

// === impl UnderWay ===

impl UnderWay {
    pub(super) fn add(&mut self, now: Tick, fate: Fate) {
        self.0.push(match fate {
            Fate::Proven(after) => (now + after, Event::Proven),
            Fate::Withdrawn(after) => (now + after, Event::Withdrawn),
        });
        self.0.sort_unstable();
    }

    /// The events up to `now`, in order.
    pub(super) fn happened(&mut self, now: Tick) -> Vec<(Tick, Event)> {
        let happened = self.0.partition_point(|(at, _)| *at <= now);
        self.0.drain(..happened).collect()
    }

    /// When the next thing happens.
    pub(super) fn next(&self) -> Option<Tick> {
        self.0.first().map(|(at, _)| *at)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Fewer than `most` fates, of which one in seven is a withdrawal, each with its delay in
/// milliseconds.
pub(super) fn fates(
    proven: Range<u64>,
    withdrawn: Range<u64>,
    most: usize,
) -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        6 => proven.prop_map(|ms| Fate::Proven(Duration::from_millis(ms))),
        1 => withdrawn.prop_map(|ms| Fate::Withdrawn(Duration::from_millis(ms))),
    ];
    vec(fate, 1..most)
}
