//! What became of calls, counted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::give_up::GiveUp;

/// Counts what retry layers do, for metrics.
///
/// Give one to [`RetryLayer::counts`](crate::RetryLayer::counts), and read it whenever the metrics
/// are asked for. A layer without one counts nothing. All numbers only grow.
///
/// Calls that are dropped, and those under way, are in [`requests`](Self::requests) alone. What has
/// stopped a nested retry layer is counted there, and not once more.
///
/// # Clone
///
/// Clones count together.
///
/// # Examples
///
/// ```
/// use http::{Request, Response};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_tds_errors::{Counts, Error, GiveUp, Kind, RetryLayer};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let busy = service_fn(async |_: Request<()>| {
///     Err::<Response<()>, _>(Error::new(Kind::Unavailable, "busy"))
/// });
/// let counts = Counts::new();
/// let service = RetryLayer::new().counts(counts.clone()).layer(busy);
/// service.oneshot(Request::new(())).await.unwrap_err();
/// assert_eq!((counts.requests(), counts.retries(), counts.recovered()), (1, 2, 0));
/// for stop in GiveUp::ALL {
///     assert_eq!(counts.stopped(*stop), u64::from(*stop == GiveUp::Attempts));
/// }
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Counts {
    shared: Arc<Shared>,
}

/// Relaxed throughout: nothing is read by the order in which these change.
#[derive(Default)]
struct Shared {
    requests: AtomicU64,
    retries: AtomicU64,
    recovered: AtomicU64,
    stopped: [AtomicU64; GiveUp::ALL.len()],
}

// === impl Counts ===

impl Counts {
    /// Nothing is counted yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many calls were made, whatever they took.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Relaxed)
    }

    /// How many attempts were made beyond the first of each call.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.shared.retries.load(Relaxed)
    }

    /// How many calls succeeded by a retry.
    #[must_use]
    pub fn recovered(&self) -> u64 {
        self.shared.recovered.load(Relaxed)
    }

    /// How many calls failed because of `stop`.
    #[must_use]
    pub fn stopped(&self, stop: GiveUp) -> u64 {
        let count = self.of(stop);
        count.map_or(0, |count| count.load(Relaxed))
    }

    pub(super) fn note_request(&self) {
        self.shared.requests.fetch_add(1, Relaxed);
    }

    pub(super) fn note_retry(&self) {
        self.shared.retries.fetch_add(1, Relaxed);
    }

    pub(super) fn note_recovery(&self) {
        self.shared.recovered.fetch_add(1, Relaxed);
    }

    pub(super) fn note_stop(&self, stop: GiveUp) {
        if let Some(count) = self.of(stop) {
            count.fetch_add(1, Relaxed);
        }
    }

    fn of(&self, stop: GiveUp) -> Option<&AtomicU64> {
        let place = GiveUp::ALL.iter().position(|each| *each == stop)?;
        self.shared.stopped.get(place)
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Counts");
        f.field("requests", &self.requests());
        f.field("retries", &self.retries());
        f.field("recovered", &self.recovered());
        for stop in GiveUp::ALL {
            f.field(stop.as_str(), &self.stopped(*stop));
        }
        f.finish()
    }
}
