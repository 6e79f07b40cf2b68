//! A token as it lies in a store.

#![cfg_attr(
    not(test),
    warn(clippy::arithmetic_side_effects, clippy::as_conversions)
)]

use std::{
    borrow::Cow,
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::wiped::Wiped;

/// Holds a token for a [`TokenStore`](crate::TokenStore): bytes, and until when they are worth
/// anything.
///
/// `Debug` shows no token, and the memory is wiped on drop. Times are those of the wall clock, the
/// only one that two machines share.
#[derive(Clone)]
pub struct StoredToken {
    bytes: Zeroizing<Vec<u8>>,
    expires_at: SystemTime,
}

/// What the bytes say. Times are milliseconds since 1970.
#[derive(Serialize, Deserialize)]
struct Entry<'a> {
    /// The name that it was saved under: a store that mixes its entries up is found out.
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow)]
    token: Cow<'a, str>,
    issued: u64,
    /// What the endpoint said, and no time of somebody's clock.
    life: u64,
}

/// What an entry is worth at this moment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Worth {
    pub(crate) token: Zeroizing<String>,
    pub(crate) age: Duration,
    pub(crate) life: Duration,
}

// === impl StoredToken ===

impl StoredToken {
    /// Takes the bytes that a store was given earlier.
    ///
    /// They are looked at when they are used: whatever they are, this does not fail.
    #[must_use]
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = Zeroizing::new(bytes.into());
        let expires_at = entry(&bytes)
            .and_then(|entry| time(entry.issued.saturating_add(entry.life)))
            .unwrap_or(UNIX_EPOCH);
        Self { bytes, expires_at }
    }

    /// The bytes to keep. The token is among them, in clear.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// When the token expires, on the wall clock; 1970 if these bytes are none of this crate's.
    #[must_use]
    pub fn expires_at(&self) -> SystemTime {
        self.expires_at
    }

    #[cfg(feature = "file-store")]
    pub(super) fn is_for(&self, key: &str) -> bool {
        entry(&self.bytes).is_some_and(|entry| entry.key == key)
    }

    /// `None` for times that no clock can show.
    pub(super) fn new(key: &str, token: &str, issued: SystemTime, life: Duration) -> Option<Self> {
        // More is not believed of it.
        let life = life.min(LONGEST);
        let expires_at = issued.checked_add(life)?;
        let entry = Entry {
            key: key.into(),
            token: token.into(),
            issued: millis(issued)?,
            life: u64::try_from(life.as_millis()).ok()?,
        };
        let mut bytes = Wiped::default();
        serde_json::to_writer(&mut bytes, &entry).ok()?;
        Some(Self {
            bytes: bytes.into_vec(),
            expires_at,
        })
    }

    /// `None` if it is no entry of this key, or expired, or dated by a clock that is far off.
    pub(super) fn read_at(&self, now: SystemTime, key: &str) -> Option<Worth> {
        let entry = entry(&self.bytes).filter(|entry| entry.key == key)?;
        let (issued, life) = (time(entry.issued)?, Duration::from_millis(entry.life));
        let age = match now.duration_since(issued) {
            Ok(age) => age,
            Err(ahead) if ahead.duration() <= SKEW => Duration::ZERO,
            Err(_) => return None,
        };
        let life = life.min(LONGEST);
        (age < life).then(|| Worth {
            token: Zeroizing::new(entry.token.into_owned()),
            age,
            life,
        })
    }
}

impl fmt::Debug for StoredToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredToken")
            .field("bytes", &"[redacted]")
            .field("expires_at", &self.expires_at)
            .finish()
    }
}

fn entry(bytes: &[u8]) -> Option<Entry<'_>> {
    serde_json::from_slice(bytes).ok()
}

fn millis(time: SystemTime) -> Option<u64> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

fn time(millis: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}

/// Two machines that keep time agree within milliseconds; one whose token comes from further in
/// the future than this has a clock that its expiry cannot be trusted to, either.
const SKEW: Duration = Duration::from_secs(60);
/// A day. Nobody vouches for an entry, and one that says more of itself costs a request a day.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
