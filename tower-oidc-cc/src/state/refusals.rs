//! The rule for refused tokens: when a 401 may cause a token request. Arithmetic on `now`, no clock.

use std::time::Duration;

use crate::clock::Timestamp;

#[cfg(test)]
mod tests;

/// Counts the refusals of the token in use and the refreshes that they caused.
///
/// Refreshes draw on a bucket of four that regains one every five minutes, so an hour sees sixteen
/// at most. The emptier the bucket, the more refusals in a row and the longer a distance the next
/// refresh takes. A refresh that fails stays owed: the next refusal repeats it at no charge.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// Refusals of the token in use since it was last accepted.
    in_a_row: u32,
    /// When the service began to refuse tokens; `None` after an acceptance.
    since: Option<Timestamp>,
    /// When the bucket is full again.
    full_at: Option<Timestamp>,
    /// When a refresh was charged last.
    charged_at: Option<Timestamp>,
    /// Whether a refresh was charged that has not brought a token.
    is_owed: bool,
}

// === impl Refusals ===

impl Refusals {
    /// Records a refusal and returns whether it may cause a refresh.
    pub(crate) fn refused_at(&mut self, now: Timestamp) -> bool {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.since.get_or_insert(now);
        if self.is_owed {
            return true;
        }
        let taken = BUCKET.len().saturating_sub(self.left_at(now));
        let Some(&(in_a_row, distance)) = BUCKET.get(taken) else {
            return false;
        };
        let is_far = self
            .charged_at
            .is_none_or(|charged_at| charged_at.age_at(now) >= distance);
        self.in_a_row >= in_a_row && is_far
    }

    /// Charges a refresh, which is due from then on. An owed refresh is not charged again.
    pub(crate) fn charge_at(&mut self, now: Timestamp) {
        if self.is_owed {
            return;
        }
        self.is_owed = true;
        self.charged_at = Some(now);
        let from = self.full_at.filter(|full_at| !full_at.has_come_at(now));
        self.full_at = from.unwrap_or(now).checked_add(REGAIN);
    }

    /// Records that the token in use was accepted, and returns for how long tokens were refused.
    pub(crate) fn accepted_at(&mut self, now: Timestamp) -> Option<Duration> {
        self.in_a_row = 0;
        self.is_owed = false;
        self.since.take().map(|since| since.age_at(now))
    }

    /// Records that another token is in use.
    pub(crate) fn replaced(&mut self) {
        self.in_a_row = 0;
        self.is_owed = false;
    }

    /// Whether the token in use was refused and not accepted since.
    pub(crate) fn is_doubted(&self) -> bool {
        self.in_a_row > 0
    }

    /// Whether the next acceptance changes anything.
    pub(crate) fn awaits_acceptance(&self) -> bool {
        self.since.is_some()
    }

    /// For how long tokens have been refused, the one in use among them.
    pub(crate) fn doubted_for_at(&self, now: Timestamp) -> Option<Duration> {
        let since = self.since.filter(|_| self.is_doubted());
        since.map(|since| since.age_at(now))
    }

    /// How many refreshes the bucket holds.
    fn left_at(&self, now: Timestamp) -> usize {
        let until_full = self
            .full_at
            .map_or(Duration::ZERO, |full_at| full_at.left_at(now));
        let missing = until_full.as_nanos().div_ceil(REGAIN.as_nanos());
        BUCKET
            .len()
            .saturating_sub(usize::try_from(missing).unwrap_or(usize::MAX))
    }
}

/// For each refresh of a full bucket: the refusals in a row that it takes, and the distance from
/// the refresh before. Chosen by the simulation in this module's tests, which compares rules by
/// failed calls over early deaths, stray refusals and routes that always refuse.
const BUCKET: [(u32, Duration); 4] = [
    (1, Duration::ZERO),
    (2, Duration::from_secs(20)),
    (4, Duration::from_secs(40)),
    (16, Duration::from_secs(80)),
];
/// The bucket regains one refresh in this time: twelve an hour, and four at once, make sixteen.
const REGAIN: Duration = Duration::from_secs(5 * 60);
