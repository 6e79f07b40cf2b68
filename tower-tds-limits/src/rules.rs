//! The set of counting rules that a limiter is safe against.

/// The ways of counting that a limiter is safe against, as one value.
///
/// A service does not document how it counts its "50 per second". The default is safe against every
/// way in use except one: a leaky bucket without any burst. Fewer rules are faster, and right only
/// if the service's way of counting is known.
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
    /// Whether the limiter is safe against sliding-window counters.
    pub counter: bool,
    /// The burst of the leaky buckets that the limiter is safe against, if any.
    pub bucket: Option<Burst>,
}

/// How many requests beyond its steady rate a leaky bucket takes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Burst {
    /// This burst, by proof. Each unproven request holds its place, so a slow response takes one
    /// place. One more slow response than the burst stops all calls.
    Of(u32),
    /// Nine places, by evidence. A quick response frees the places of the requests that were
    /// granted before it, so slow calls cost the others nothing. A bucket of ten may refuse if the
    /// network stalls for longer than three seconds, or in one direction only. It applies to quotas
    /// of at most a second.
    Auto,
}

// === impl Rules ===

impl Rules {
    /// Returns the proof window alone: at most the quota is live at any grant.
    pub const fn window() -> Self {
        Self {
            counter: false,
            bucket: None,
        }
    }

    /// Adds safety against sliding-window counters, at any alignment of their windows.
    pub const fn counter(mut self) -> Self {
        self.counter = true;
        self
    }

    /// Adds safety against leaky buckets with a burst of at least `burst`.
    pub const fn bucket(mut self, burst: Burst) -> Self {
        self.bucket = Some(burst);
        self
    }
}

/// All rules, with an automatic burst.
impl Default for Rules {
    fn default() -> Self {
        Self::window().counter().bucket(Burst::Auto)
    }
}
