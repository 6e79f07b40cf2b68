//! The settings, as values.

use std::num::NonZeroU32;
use std::time::Duration;

use super::backoff::{Backoff, Dice};
use super::budget::Budget;
use super::counts::Counts;
use crate::guard::Bodies;

#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) attempts: NonZeroU32,
    pub(super) deadline: Option<Duration>,
    pub(super) attempt: Option<Duration>,
    pub(super) longest_wait: Duration,
    pub(super) backoff: Backoff,
    pub(super) budget: Option<Budget>,
    pub(super) bodies: Option<Bodies>,
    pub(super) counts: Option<Counts>,
    pub(super) dice: Dice,
}

// === impl Policy ===

impl Default for Policy {
    fn default() -> Self {
        Self {
            attempts: THREE,
            deadline: Some(DEADLINE),
            attempt: Some(ATTEMPT),
            longest_wait: LONGEST_WAIT,
            backoff: Backoff::default(),
            budget: Some(Budget::default()),
            bodies: None,
            counts: None,
            dice: Dice::default(),
        }
    }
}

/// The SRE book's rule for one level of retries ("Handling Overload").
const THREE: NonZeroU32 = NonZeroU32::MIN.saturating_add(2);

/// Twice the longest wait that is slept through, and as long again for the attempts.
const DEADLINE: Duration = Duration::from_secs(120);

/// What proxies wait for a head by default (nginx, `proxy_read_timeout`; Kong, `read_timeout`):
/// after that the gateway has given up, and what is waited for is a connection that is dead.
const ATTEMPT: Duration = Duration::from_secs(60);

/// What a caller can be made to wait without being asked; a window of a minute is above it.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
