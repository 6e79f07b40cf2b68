//! What a call takes of a token.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::HeaderValue;

use super::shared::Shared;

/// A token's header, and the way back for what the answers to it say.
///
/// Both count their users, and so there is one of each for each lane of threads: with one for all,
/// each call of each thread would write to the same two cache lines, and two threads would be
/// slower than one.
#[derive(Debug)]
pub(crate) struct Badge {
    pub(crate) header: HeaderValue,
    pub(crate) generation: u64,
    pub(crate) desk: Arc<Desk>,
}

/// The shared state, behind a count that the threads of one lane write to.
#[repr(align(128))]
pub(crate) struct Desk {
    pub(super) shared: Arc<Shared>,
}

// === impl Desk ===

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Desk")
    }
}

/// The number of this thread: below [`LANES`], and shared only if there are more threads.
pub(super) fn lane() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // Relaxed: the numbers need to differ and nothing else.
        static LANE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % LANES;
    }
    LANE.with(|lane| *lane)
}

/// The one of `all` that is for the thread that asks.
pub(super) fn pick<T>(all: &[T; LANES]) -> &T {
    let [first, ..] = all;
    all.get(lane()).unwrap_or(first)
}

/// Sixteen copies of a Keycloak's token are 30 kB, and sixteen threads with a lane of their own are
/// more than most clients have; beyond that two of them slow each other a little.
pub(super) const LANES: usize = 16;
