//! The slot: the token that calls take, as a header that was made once.

use std::sync::{
    Arc,
    atomic::{AtomicU64 as Bits, AtomicUsize, Ordering as Order},
};

use bytes::Bytes;
use http::HeaderValue;
use zeroize::Zeroizing;

use super::sync::{ArcSwapOption, AtomicU64, Guard, Ordering};
use crate::{
    clock::{COARSE, Timestamp, seconds},
    state::{Call, group},
};

/// Holds the token that may be sent.
///
/// It is full only while a task attends to it, who empties it at expiry; a call looks at the wall
/// clock as well, since that task may be late. Whoever writes holds the lock of the shared state.
///
/// It stands alone on its cache lines, since all threads read it for each call: what is written
/// near it, such as the count of handles, would take it from them. 128 bytes are two lines, which
/// x86 fetches as a pair, or one of Apple's.
#[repr(align(128))]
pub(super) struct Slot {
    token: ArcSwapOption<Bearer>,
    /// The number of the token in the slot; 0 when it is empty, which is no token's number.
    ///
    /// Relaxed everywhere: it is compared with the number of a token that the reader holds
    /// already, and whoever holds none takes it from `token`, which has its own orderings.
    current: AtomicU64,
    /// When that token expires, in whole seconds on the wall clock. Relaxed as `current` is: a
    /// reader who sees an older one sees a token that is gone, and takes the slow way.
    expires: Bits,
    /// A bit for each group of places whose acceptance is no news. Relaxed: one report too many
    /// does no harm, and a group whose report is missed has another.
    heard: Bits,
}

/// One token: its header, once for each lane of threads.
///
/// A header counts its users: with one for all, each call of each thread would write to the same
/// cache line, and two threads would be slower than one.
pub(super) struct Bearer {
    pub(super) generation: u64,
    pub(super) expires_at: Timestamp,
    lanes: [Arc<Lane>; LANES],
}

/// What a call takes of a token: the header, for one lane of threads.
#[repr(align(128))]
pub(super) struct Lane {
    pub(super) header: HeaderValue,
    pub(super) generation: u64,
}

/// The bytes of a header, with the count of their users on a cache line of their own: it stands
/// right before this.
#[repr(align(128))]
struct Line {
    bytes: Zeroizing<Vec<u8>>,
}

// === impl Slot ===

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            token: ArcSwapOption::const_empty(),
            current: AtomicU64::new(0),
            expires: Bits::new(0),
            heard: Bits::new(0),
        }
    }

    /// The number of the token that may be sent at this second of the wall clock; 0 if there is
    /// none.
    #[inline]
    pub(super) fn current_at(&self, seconds: u64) -> u64 {
        if seconds < self.expires.load(Order::Relaxed) {
            self.current.load(Ordering::Relaxed)
        } else {
            0
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.current.load(Ordering::Relaxed) == 0
    }

    pub(super) fn load(&self) -> Guard<Option<Arc<Bearer>>> {
        self.token.load()
    }

    pub(super) fn fill(&self, token: Arc<Bearer>) {
        let generation = token.generation;
        let wall = token.expires_at.wall.checked_sub(COARSE);
        self.token.store(Some(token));
        self.expires.store(wall.map_or(0, seconds), Order::Relaxed);
        self.current.store(generation, Ordering::Relaxed);
    }

    pub(super) fn empty(&self) {
        self.current.store(0, Ordering::Relaxed);
        self.token.store(None);
    }

    /// Whether it is no news that a call of this place is accepted.
    #[inline]
    pub(super) fn is_heard(&self, call: Call) -> bool {
        self.heard.load(Order::Relaxed) & group(call) != 0
    }

    /// Of these groups it is not.
    pub(super) fn hear(&self, groups: u64) {
        if self.heard.load(Order::Relaxed) != groups {
            self.heard.store(groups, Order::Relaxed);
        }
    }
}

// === impl Bearer ===

impl Bearer {
    pub(super) fn new(header: &HeaderValue, generation: u64, expires_at: Timestamp) -> Self {
        let lane = |_| {
            Arc::new(Lane {
                header: copy(header),
                generation,
            })
        };
        Self {
            generation,
            expires_at,
            lanes: std::array::from_fn(lane),
        }
    }

    /// The lane of the thread that asks.
    pub(super) fn lane(&self) -> &Arc<Lane> {
        let [first, ..] = &self.lanes;
        self.lanes.get(lane()).unwrap_or(first)
    }
}

// === impl Line ===

impl AsRef<[u8]> for Line {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The number of this thread: below [`LANES`], and shared only if there are more threads.
fn lane() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // Relaxed: the numbers need to differ and nothing else.
        static LANE: usize = NEXT.fetch_add(1, Order::Relaxed) % LANES;
    }
    LANE.with(|lane| *lane)
}

/// Makes the sensitive header of a token, or says why it cannot be one.
///
/// The bytes are wiped when the last copy of the header is dropped, here or in the HTTP client.
pub(crate) fn header(token: &str) -> Result<HeaderValue, &'static str> {
    if token.is_empty() {
        return Err("it is empty");
    }
    // RFC 6750, section 2.1, allows less still; what must not pass is a space, a line end or
    // anything that another reader of the header would take for the end of it.
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("it is not visible ASCII");
    }
    sensitive(&[SCHEME, token.as_bytes()]).map_err(|_| "it is no header value")
}

/// The token in a header that [`header`] made.
pub(crate) fn token(header: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(header.as_bytes().strip_prefix(SCHEME)?).ok()
}

/// The same header in bytes of its own.
fn copy(header: &HeaderValue) -> HeaderValue {
    sensitive(&[header.as_bytes()]).unwrap_or_else(|_| header.clone())
}

fn sensitive(parts: &[&[u8]]) -> Result<HeaderValue, http::header::InvalidHeaderValue> {
    let line = Line {
        bytes: Zeroizing::new(parts.concat()),
    };
    let mut header = HeaderValue::from_maybe_shared(Bytes::from_owner(line))?;
    header.set_sensitive(true);
    Ok(header)
}

const SCHEME: &[u8] = b"Bearer ";
/// Sixteen copies of a Keycloak's token are 30 kB, and sixteen threads with a lane of their own are
/// more than most clients have; beyond that two of them slow each other a little.
const LANES: usize = 16;
