//! Largest counts that a service can have, by auditors that share nothing with the limiter or with
//! the simulated service.

use std::{collections::VecDeque, time::Duration};

use crate::audit;

/// The arrivals and ends of requests, in order, for a quota.
#[derive(Debug)]
pub(crate) struct Models {
    limit: u32,
    per: Duration,
    arrived: Vec<Duration>,
    open: usize,
    /// The ends of the last interval.
    ended: VecDeque<Duration>,
    in_flight: usize,
}

/// The largest counts. Under 50 a second each may be 50, and the level of a bucket its burst.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Largest {
    /// Arrivals in any half-open interval: no fixed window and no log sees more.
    pub(crate) interval: usize,
    /// Sum of a weighing counter, whenever its windows begin.
    pub(crate) estimate: f64,
    /// Level of a bucket that drains at the limit's rate, before an arrival.
    pub(crate) level: f64,
    /// Requests that were in flight at some time of the interval up to an arrival.
    pub(crate) in_flight: usize,
}

// === impl Models ===

impl Models {
    pub(crate) fn new(limit: u32, per: Duration) -> Self {
        Self {
            limit,
            per,
            arrived: Vec::new(),
            open: 0,
            ended: VecDeque::new(),
            in_flight: 0,
        }
    }

    pub(crate) fn arrive(&mut self, now: Duration) {
        self.arrived.push(now);
        while self.ended.front().is_some_and(|at| *at + self.per <= now) {
            self.ended.pop_front();
        }
        self.open += 1;
        self.in_flight = self.in_flight.max(self.open + self.ended.len());
    }

    pub(crate) fn end(&mut self, now: Duration) {
        self.open -= 1;
        self.ended.push_back(now);
    }

    pub(crate) fn largest(&self) -> Largest {
        let (arrived, per) = (&self.arrived, self.per);
        Largest {
            interval: audit::fullest_interval(arrived, per),
            estimate: audit::fullest_counter(arrived, per),
            level: audit::fullest_bucket(arrived, self.limit, per) - 1.0,
            in_flight: self.in_flight,
        }
    }
}
