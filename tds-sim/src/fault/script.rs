//! The faults with their progress: which of them strike the next call.

use std::{sync::Arc, time::Duration};

use http::StatusCode;

use crate::{
    delay::Delay,
    fault::{DataFault, Faults, TokenFault},
    shared::Clock,
};

/// The faults with their progress.
#[derive(Debug)]
pub(crate) struct Script {
    clock: Arc<Clock>,
    pub(crate) faults: Faults,
    rng: fastrand::Rng,
    calls: u64,
    posts: u64,
    /// The status of a burst under way, and how many calls are left of it.
    burst: Option<(StatusCode, u32)>,
}

/// Faults of one data call.
#[derive(Debug)]
pub(crate) struct Strike {
    pub(crate) before_counting: Duration,
    pub(crate) before_head: Duration,
    pub(crate) head: Option<HeadFault>,
    pub(crate) body: BodyFaults,
}

/// Fault in place of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadFault {
    Reset,
    Garbage,
    Status(StatusCode),
}

/// Fault within the body, and its delays.
#[derive(Debug)]
pub(crate) struct BodyFaults {
    pub(crate) fault: Option<BodyFault>,
    pub(crate) delay: Delay,
    pub(crate) rng: fastrand::Rng,
    pub(crate) clock: Arc<Clock>,
}

/// Fault within the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFault {
    Reset,
    Truncate,
    Endless,
    Drip(Duration),
    Stall(Duration),
}

// === impl Script ===

impl Script {
    pub(crate) fn new(clock: Arc<Clock>, faults: Faults, seed: u64) -> Self {
        Self {
            clock,
            faults,
            rng: fastrand::Rng::with_seed(seed),
            calls: 0,
            posts: 0,
            burst: None,
        }
    }

    /// Plays other faults from here on, counting from the first call again.
    pub(crate) fn replace(&mut self, faults: Faults) {
        self.faults = faults;
        self.calls = 0;
        self.posts = 0;
        self.burst = None;
    }

    /// Returns the faults of the next data call, which is for `target`.
    pub(crate) fn call(&mut self, target: &str) -> Strike {
        let at = self.clock.now();
        let own = self.faults.before_head_of.as_ref();
        let own = own.filter(|(end, _)| target.ends_with(end));
        let before_head = own.map_or(self.faults.before_head, |(_, delay)| *delay);
        self.calls += 1;
        let mut strike = Strike {
            before_counting: self.faults.before_counting.sample(at, &mut self.rng),
            before_head: before_head.sample(at, &mut self.rng),
            head: None,
            body: BodyFaults {
                fault: None,
                delay: self.faults.during_body,
                rng: self.rng.fork(),
                clock: Arc::clone(&self.clock),
            },
        };
        for scripted in &self.faults.data {
            if !scripted.when.strikes(self.calls, &mut self.rng) {
                continue;
            }
            match scripted.fault {
                DataFault::ResetHead => strike.head = Some(HeadFault::Reset),
                DataFault::Garbage => strike.head = Some(HeadFault::Garbage),
                DataFault::ResetBody => strike.body.fault = Some(BodyFault::Reset),
                DataFault::Truncate => strike.body.fault = Some(BodyFault::Truncate),
                DataFault::Endless => strike.body.fault = Some(BodyFault::Endless),
                DataFault::Drip(pause) => strike.body.fault = Some(BodyFault::Drip(pause)),
                DataFault::Stall(pause) => strike.body.fault = Some(BodyFault::Stall(pause)),
                DataFault::Status { status, burst } => {
                    let status = StatusCode::from_u16(status);
                    self.burst = Some((status.unwrap_or(StatusCode::BAD_GATEWAY), burst));
                }
            }
        }
        if let Some((status, left @ 1..)) = self.burst {
            self.burst = Some((status, left - 1));
            strike.head = strike.head.or(Some(HeadFault::Status(status)));
        }
        strike
    }

    /// Returns the fault of the next token POST: the first that applies.
    pub(crate) fn post(&mut self) -> Option<TokenFault> {
        self.posts += 1;
        let (posts, rng) = (self.posts, &mut self.rng);
        let mut striking = self.faults.token.iter();
        striking
            .find(|scripted| scripted.when.strikes(posts, rng))
            .map(|scripted| scripted.fault)
    }
}
