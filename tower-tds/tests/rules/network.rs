//! The network between the limiter and the service's count, and between that and the answer.

use std::time::Duration;

use fastrand::Rng;
use tds_sim::Delay;

/// The delays that requests meet, each on its own, so that they overtake each other.
#[derive(Debug)]
pub(crate) struct Network {
    /// Least delay of each way.
    base: Duration,
    /// Random delay of each way, in addition.
    jitter: Jitter,
    /// Delay of the service, between the count and the answer.
    service: Delay,
    rng: Rng,
    longest_way: Duration,
    bodies: bool,
}

#[derive(Debug, Clone, Copy)]
enum Jitter {
    By(Delay),
    /// One in five is held up for as long as two seconds, and the others overtake it.
    Reordering,
}

// === impl Network ===

impl Network {
    pub(crate) fn new(base: &str, jitter: &str, service: &str) -> Self {
        Self {
            base: tds_sim::parse_duration(base).expect("a duration"),
            jitter: match jitter {
                "reordering" => Jitter::Reordering,
                delay => Jitter::By(delay.parse().expect("a delay")),
            },
            service: service.parse().expect("a delay"),
            rng: Rng::with_seed(7),
            longest_way: Duration::ZERO,
            bodies: false,
        }
    }

    /// Returns the time until a request that is sent at `now` is counted.
    pub(crate) fn there(&mut self, now: Duration) -> Duration {
        let way = self.base + self.jitter.sample(now + self.base, &mut self.rng);
        self.longest_way = self.longest_way.max(way);
        way
    }

    /// Returns the longest delay so far.
    pub(crate) fn longest_way(&self) -> Duration {
        self.longest_way
    }

    /// Returns the delays that follow from this seed.
    pub(crate) fn with_seed(mut self, seed: u64) -> Self {
        self.rng = Rng::with_seed(seed);
        self
    }

    /// The body takes half of the service's time. Head and body have the same jitter, and a stall
    /// holds up each of them.
    pub(crate) fn with_bodies(mut self) -> Self {
        self.bodies = true;
        self
    }

    /// Returns the time until the response head of a request that is counted at `now`, and the time
    /// of the body after it.
    pub(crate) fn back(&mut self, now: Duration) -> (Duration, Duration) {
        let service = self.service.sample(now, &mut self.rng) + self.base;
        let whole = |rng: &mut Rng| service + self.jitter.sample(now + service, rng);
        if !self.bodies {
            return (whole(&mut self.rng), Duration::ZERO);
        }
        let whole = whole(&mut self.rng.clone());
        let head = service / 2 + self.jitter.sample(now + service / 2, &mut self.rng);
        (head, whole.saturating_sub(head))
    }
}

// === impl Jitter ===

impl Jitter {
    fn sample(self, at: Duration, rng: &mut Rng) -> Duration {
        match self {
            Self::By(delay) => delay.sample(at, rng),
            Self::Reordering if rng.u8(..5) == 0 => Duration::from_millis(rng.u64(..=2_000)),
            Self::Reordering => Duration::ZERO,
        }
    }
}
