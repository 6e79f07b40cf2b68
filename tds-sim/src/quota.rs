//! The call-count ceiling behind 429, whose value the contract does not show.

use std::{collections::HashMap, str::FromStr, sync::Arc, time::Duration};

use crate::{
    rule::{Meter, Rule},
    text,
};

/// So many calls of one key in each window of the simulator's clock.
///
/// Written as text it is `CALLS/WINDOW`, such as `20/60s`.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tds_sim::Quota;
///
/// let quota: Quota = "1000/3600s".parse()?;
/// assert_eq!(quota, Quota::new(1000, Duration::from_secs(3600)));
/// # Ok::<_, tds_sim::ParseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    calls: u32,
    per: Duration,
}

/// What each key has used of its quota.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    quota: Option<Quota>,
    keys: HashMap<Arc<str>, Meter>,
}

// === impl Quota ===

impl Quota {
    /// `calls` in each window of `per`.
    #[must_use]
    pub const fn new(calls: u32, per: Duration) -> Self {
        Self { calls, per }
    }

    /// Whole seconds to the end of the window, rounded up, so at least one.
    fn seconds_left(self, at: Duration) -> u64 {
        let per = self.per.as_nanos().max(1);
        let left = per.saturating_sub(at.as_nanos().checked_rem(per).unwrap_or(0));
        u64::try_from(left.div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
    }
}

impl FromStr for Quota {
    type Err = text::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = || text::ParseError::new("quota", text, "CALLS/WINDOW, such as 20/60s");
        let (calls, per) = text.split_once('/').ok_or_else(wanted)?;
        let per = text::duration(per)?;
        if per.is_zero() {
            return Err(wanted());
        }
        Ok(Self {
            calls: calls.parse().map_err(|_| wanted())?,
            per,
        })
    }
}

// === impl Usage ===

impl Usage {
    /// Nobody has used anything of `quota` yet.
    pub(crate) fn of(quota: Option<Quota>) -> Self {
        Self {
            quota,
            keys: HashMap::new(),
        }
    }

    /// Counts a call of `client`, or says after how many seconds its window ends.
    pub(crate) fn call(&mut self, client: &Arc<str>, at: Duration) -> Result<(), u64> {
        let Some(quota) = self.quota else {
            return Ok(());
        };
        let meter = self
            .keys
            .entry(Arc::clone(client))
            .or_insert_with(|| Rule::FixedWindow.meter(quota.calls, quota.per));
        if meter.arrive(at) {
            Ok(())
        } else {
            Err(quota.seconds_left(at))
        }
    }
}
