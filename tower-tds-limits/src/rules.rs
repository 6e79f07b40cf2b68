//! The set of counting rules that a limiter is safe against.

/// The ways of counting that a limiter is safe against, as one value.
///
/// Nobody says how a service counts its "50 per second", so the default is safe against every
/// way that is in use but one: a leaky bucket without any burst. Less is faster, and right only
/// where the service's way of counting is known.
///
/// | rules | safe against | requests a second of 50, answers after 110 ms |
/// |---|---|---|
/// | [`Rules::window`] | fixed windows, sliding logs, full token buckets | 45 |
/// | and [`counter`](Self::counter) | sliding-window counters (HAProxy, CDNs), any alignment | 42 |
/// | and [`bucket`](Self::bucket) | leaky buckets with that burst (nginx `limit_req`) | 42 |
///
/// # Examples
/// ```
/// use tower_tds_limits::{Limits, Rules};
///
/// // This service is known to keep a sliding log.
/// let limits = Limits::default().rules(Rules::window());
/// # drop(limits);
/// ```
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rules {
    /// Whether sliding-window counters are kept within.
    pub counter: bool,
    /// The burst of the leaky buckets that are kept within, if any are.
    pub bucket: Option<Burst>,
}

/// How many requests beyond its steady rate a leaky bucket takes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Burst {
    /// As many as it says, by proof: what is unproven takes its place for as long as that lasts, so
    /// one slow answer leaves one place fewer, and as many as this and one more stop everybody.
    Of(u32),
    /// Nine places, by evidence: what was granted before a quick answer leaves its place at that
    /// answer, so slow calls cost the others nothing. A bucket of ten may refuse where the network
    /// stands still for longer than three seconds, or in one direction only. Kept for quotas of at
    /// most a second.
    Auto,
}

// === impl Rules ===

impl Rules {
    /// The proof window alone: at most the quota is live at any grant.
    pub const fn window() -> Self {
        Self {
            counter: false,
            bucket: None,
        }
    }

    /// Is safe against sliding-window counters, too, whenever their windows begin.
    pub const fn counter(mut self) -> Self {
        self.counter = true;
        self
    }

    /// Is safe against leaky buckets with a burst of at least `burst`, too.
    pub const fn bucket(mut self, burst: Burst) -> Self {
        self.bucket = Some(burst);
        self
    }
}

/// All of them, with an automatic burst.
impl Default for Rules {
    fn default() -> Self {
        Self::window().counter().bucket(Burst::Auto)
    }
}
