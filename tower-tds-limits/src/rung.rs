//! How careful a limiter is at the moment.

/// A step of the ladder that a limiter climbs down when it is refused all the same.
///
/// By the proof a refusal for the rate means that the service keeps a stricter rule than
/// [`Rules`](crate::Rules) names, or that somebody else uses the quota. The limiter is silent for
/// a second and goes one rung down. Ten minutes without a refusal take it one up again; if that
/// is refused, the next try comes after twice as long.
///
/// # Examples
/// ```
/// use tower_tds_limits::{Limits, Rung};
///
/// // This service is known to refuse bursts: begin carefully, and try the faster rungs later.
/// let limits = Limits::default().start_at(Rung::Serial);
/// # drop(limits);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum Rung {
    /// Evenly spaced, with allowance for the jitter that was seen, and no proof: 97 % and more of
    /// the quota where answers take the same time to within 20 ms, as the proven rules where they
    /// do not. The first stall of the network may be refused, which leads down. Only for those
    /// who ask for it: `start_at(Rung::Paced)`.
    Paced,
    /// What [`Limits::rules`](crate::Limits::rules) says. The default start.
    #[default]
    Proven,
    /// Those, sliding-window counters, and leaky buckets with a burst of ten.
    Strict,
    /// One request at a time, spaced evenly: right even for leaky buckets without any burst.
    Serial,
    /// As before, with four fifths of the quota for each time that it was refused there.
    Slowed(u8),
}

// === impl Rung ===

impl Rung {
    /// One rung down; there is always a slower one, up to a fortieth of the quota.
    pub(crate) const fn down(self) -> Self {
        match self {
            Self::Paced => Self::Proven,
            Self::Proven => Self::Strict,
            Self::Strict => Self::Serial,
            Self::Serial => Self::Slowed(1),
            Self::Slowed(times) if times < SLOWEST => Self::Slowed(times.saturating_add(1)),
            Self::Slowed(_) => Self::Slowed(SLOWEST),
        }
    }

    /// One rung up; `None` on the highest.
    pub(crate) const fn up(self) -> Option<Self> {
        match self {
            Self::Paced => None,
            Self::Proven => Some(Self::Paced),
            Self::Strict => Some(Self::Proven),
            Self::Serial => Some(Self::Strict),
            Self::Slowed(0 | 1) => Some(Self::Serial),
            Self::Slowed(times) => Some(Self::Slowed(times.saturating_sub(1))),
        }
    }
}

/// `0.8^16` is about a fortieth.
const SLOWEST: u8 = 16;
