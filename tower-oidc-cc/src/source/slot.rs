//! The slot: the token that calls take, as a header that was made once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use bytes::Bytes;
use http::HeaderValue;
use zeroize::Zeroizing;

use super::sync::{ArcSwapOption, Guard};
use crate::{
    clock::Timestamp,
    state::{Call, group},
};

/// Holds the token that may be sent.
///
/// It is full only while a task attends to it, which empties it at expiry. A call looks at the wall
/// clock as well, since that task may be late. The writer holds the lock of the shared state.
pub(super) struct Slot {
    token: ArcSwapOption<Bearer>,
    /// A bit for each group of places whose acceptance is no news. Relaxed: one report too many
    /// does no harm, and a group whose report is missed has another.
    heard: AtomicU64,
}

/// One token.
pub(super) struct Bearer {
    pub(super) generation: u64,
    pub(super) header: HeaderValue,
    pub(super) expires_at: Timestamp,
}

// === impl Slot ===

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            token: ArcSwapOption::const_empty(),
            heard: AtomicU64::new(0),
        }
    }

    pub(super) fn load(&self) -> Guard<Option<Arc<Bearer>>> {
        self.token.load()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.load().is_none()
    }

    pub(super) fn fill(&self, token: Arc<Bearer>) {
        self.token.store(Some(token));
    }

    pub(super) fn empty(&self) {
        self.token.store(None);
    }

    /// Whether it is no news that a call of this place is accepted.
    pub(super) fn is_heard(&self, call: Call) -> bool {
        self.heard.load(Ordering::Relaxed) & group(call) != 0
    }

    /// Of these groups it is not.
    pub(super) fn hear(&self, groups: u64) {
        self.heard.store(groups, Ordering::Relaxed);
    }
}

// === impl Bearer ===

impl Bearer {
    /// Whether it may be sent at this moment of the wall clock.
    pub(super) fn is_fresh_at(&self, wall: SystemTime) -> bool {
        wall < self.expires_at.wall
    }
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
    let line = Zeroizing::new([SCHEME, token.as_bytes()].concat());
    let mut header = HeaderValue::from_maybe_shared(Bytes::from_owner(line))
        .map_err(|_| "it is no header value")?;
    header.set_sensitive(true);
    Ok(header)
}

/// The token in a header that [`header`] made.
pub(crate) fn token(header: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(header.as_bytes().strip_prefix(SCHEME)?).ok()
}

const SCHEME: &[u8] = b"Bearer ";
