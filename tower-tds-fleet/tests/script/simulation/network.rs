//! Delays of the simulated network.

use std::time::Duration;

use fastrand::Rng;

/// One direction between the members and the service.
#[derive(Debug, Clone)]
pub(super) struct Path {
    base: Duration,
    jitter: Jitter,
    /// When the next stall begins, or the last one began.
    stall: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Jitter {
    None,
    UpTo(Duration),
    /// Median and 99th percentile.
    Lognormal(Duration, Duration),
    /// Nothing arrives for 300 ms, once in about 5 s; then all that is under way does.
    Stalls,
}

/// The networks between members and service that the study of the limiter names, and one next door.
pub(super) const NETWORKS: [(&str, Path); 6] = [
    ("near", Path::new(0, Jitter::None)),
    ("none", Path::new(10, Jitter::None)),
    ("u5", Path::new(10, Jitter::UpTo(Duration::from_millis(5)))),
    (
        "u50",
        Path::new(10, Jitter::UpTo(Duration::from_millis(50))),
    ),
    ("logn", Path::new(10, LOGNORMAL)),
    ("spike", Path::new(10, Jitter::Stalls)),
];

const LOGNORMAL: Jitter = Jitter::Lognormal(Duration::from_millis(10), Duration::from_millis(200));

/// One direction between a member and the store.
pub(super) const HOPS: [(&str, Hop); 3] = [
    ("no hop", Hop::None),
    ("LAN", Hop::Of(Duration::from_millis(5))),
    ("bad", Hop::Of(Duration::from_millis(100))),
];

#[derive(Debug, Clone, Copy)]
pub(super) enum Hop {
    None,
    /// 0.2 ms, and a lognormal time of median 0.3 ms and this 99th percentile.
    Of(Duration),
}

// === impl Path ===

impl Path {
    const fn new(base: u64, jitter: Jitter) -> Self {
        Self {
            base: Duration::from_millis(base),
            jitter,
            stall: Duration::ZERO,
        }
    }

    /// When that arrives which is sent at `sent`; asked in about the order of time.
    pub(super) fn arrival(&mut self, sent: Duration, rng: &mut Rng) -> Duration {
        let at = sent + self.base;
        match self.jitter {
            Jitter::None => at,
            Jitter::UpTo(most) => at + most.mul_f64(rng.f64()),
            Jitter::Lognormal(median, p99) => at + lognormal(median, p99, rng),
            Jitter::Stalls => {
                while self.stall + STALL <= at {
                    let calm = Duration::from_millis(4_700).mul_f64(exponential(rng));
                    self.stall += STALL + calm;
                }
                if self.stall <= at && !self.stall.is_zero() {
                    self.stall + STALL
                } else {
                    at
                }
            }
        }
    }
}

// === impl Hop ===

impl Hop {
    pub(super) fn delay(self, rng: &mut Rng) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Of(p99) => {
                let more = lognormal(Duration::from_micros(300), p99, rng);
                // What is longer is for the timeout.
                Duration::from_micros(200) + more.min(Duration::from_millis(900))
            }
        }
    }
}

/// Of mean 1.
pub(super) fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

pub(super) fn lognormal(median: Duration, p99: Duration, rng: &mut Rng) -> Duration {
    let sigma = (p99.as_secs_f64() / median.as_secs_f64()).ln() / 2.326;
    spread(median, sigma, rng)
}

/// A lognormal time with this deviation of its logarithm.
pub(super) fn spread(median: Duration, sigma: f64, rng: &mut Rng) -> Duration {
    let normal = (2.0 * exponential(rng)).sqrt() * (std::f64::consts::TAU * rng.f64()).cos();
    median.mul_f64((sigma * normal).exp())
}

const STALL: Duration = Duration::from_millis(300);
