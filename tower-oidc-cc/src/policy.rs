//! When a token that still works is replaced.

use std::time::Duration;

/// Says when the next token is fetched: a value that [`TokenSourceBuilder::policy`] takes.
///
/// Under every policy the first token is fetched by the first use, a dead one is replaced at once,
/// and an expired one is never sent. The policies differ in who waits and in what a day costs; the
/// figures are for tokens of 24 hours, the default of the service that this crate was made for,
/// and count the one at the start.
///
/// [`TokenSourceBuilder::policy`]: crate::TokenSourceBuilder::policy
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_oidc_cc::RefreshPolicy;
///
/// let every_six_hours = RefreshPolicy::Interval(Duration::from_secs(6 * 60 * 60));
/// assert_ne!(every_six_hours, RefreshPolicy::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefreshPolicy {
    /// At 70 to 80 % of a token's life, at a random moment: 2 requests a day, and no call waits.
    #[default]
    Ahead,
    /// On a fixed schedule, such as every 4 or 6 hours: 7 or 5 requests a day, and no call waits.
    ///
    /// Each turn comes up to a tenth early, at random, so that processes started together drift
    /// apart. A token that lives too short for the schedule is renewed as by [`Ahead`](Self::Ahead).
    /// Less than a minute counts as a minute.
    Interval(Duration),
    /// When a call finds the token expired: 2 requests a day at most and none while nobody calls,
    /// but that call waits, and all that come with it, and there is no token while the endpoint is
    /// down.
    OnExpiry,
}

// === impl RefreshPolicy ===

impl RefreshPolicy {
    /// How old a token of this life grows before it is renewed; `draw`, in `0.0..1.0`, is the
    /// jitter and only ever makes it younger.
    pub(crate) fn age(self, life: Duration, draw: f64) -> Duration {
        let ahead = life.mul_f64(RENEW - EARLIER * draw);
        match self {
            Self::Ahead => ahead,
            Self::Interval(every) => {
                let every = every.max(SHORTEST).min(life);
                every.mul_f64(1.0 - EARLIER * draw).min(ahead)
            }
            Self::OnExpiry => life,
        }
    }
}

/// Renewal at 80 % of life at the latest: a 24 h token costs 1.25 to 1.43 requests a day, and an
/// endpoint may be down for almost five hours before a call notices.
const RENEW: f64 = 0.8;
/// The jitter, as a share of life: 2.4 h for a 24 h token, which spreads a thousand processes
/// started at once to one renewal in nine seconds. Of an interval it is the same share: six turns
/// of 4 h then fit 24 h, and a seventh does not (6 * 4 h * 0.9 is 21.6 h, 7 * 3.6 h is 25.2 h).
const EARLIER: f64 = 0.1;
/// A schedule in seconds is a unit that somebody forgot.
const SHORTEST: Duration = Duration::from_secs(60);
