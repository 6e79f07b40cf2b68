//! Static division of limits over processes that share an IP address.

use std::num::NonZeroU32;

use super::Limits;
use crate::{Burst, Quota};

/// The part of the limits that one of several processes may use.
///
/// Set by [`Limiter::set_share`](crate::Limiter::set_share). If the sum over all processes of each
/// one's share, or of what it [holds](crate::Limiter::held) where that is more, never exceeds the
/// limits, all together keep within them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    /// Requests of the first quota. Each other quota is divided in proportion.
    pub requests: u32,
    /// Requests that a leaky bucket takes at once: its burst and one more.
    pub places: u32,
    /// Sockets.
    pub connections: u32,
}

// === impl Share ===

impl Share {
    /// Whether some rule grants nothing.
    pub(crate) fn is_empty(self, quotas: &[Quota]) -> bool {
        let first = quotas
            .first()
            .map_or(1, |first| u64::from(first.requests().get()));
        let part = |quota: &Quota| u64::from(quota.requests().get()) * u64::from(self.requests);
        self.places == 0 || quotas.iter().any(|quota| part(quota) < first)
    }

    /// The part of a quota, where `first` is the whole first quota. It is one request at least, so
    /// that a bucket drains while nothing is granted.
    pub(crate) fn of(self, quota: Quota, first: Quota) -> Quota {
        let (whole, first) = (quota.requests().get(), first.requests().get());
        let part = u64::from(whole) * u64::from(self.requests) / u64::from(first);
        let part = u32::try_from(part).unwrap_or(u32::MAX);
        let part = NonZeroU32::new(part).unwrap_or(NonZeroU32::MIN);
        Quota::new(part, quota.per()).unwrap_or(quota)
    }
}

// === impl Limits ===

impl Limits {
    /// Divides these limits over several processes behind one IP address.
    ///
    /// Give each process one of the shares, by its number. Counts add up, so a bound that each
    /// process keeps by proof holds for all together. The requests of each quota, the requests in
    /// flight, the sockets and the burst of a leaky bucket are divided without a remainder. The
    /// processes exchange nothing and need no store. Where the load is uneven, prefer one process
    /// that calls for the others: no other process can use an idle share.
    ///
    /// | 50 a second, answers after 110 ms | requests a second of all together |
    /// |---|---|
    /// | one process | 42 |
    /// | 4 processes, all busy | 39 |
    /// | 4 processes, one of them busy | 10 |
    ///
    /// (Always backlogged, simulated; asserted by `cargo test -p tower-tds-limits shares`.)
    ///
    /// An automatic burst ([`Burst::Auto`]) becomes a part of ten, because bursts that grow in each
    /// process would exceed it together. A refusal changes the rung of one process alone. A
    /// restarted process cannot know its predecessor's requests: let it begin
    /// [drained](Self::drained).
    ///
    /// Returns `None` if a share would be empty, because there are more processes than the smallest
    /// limit has places.
    ///
    /// # Examples
    /// ```
    /// use std::num::NonZeroU32;
    /// use tower_tds_limits::{Limiter, Limits};
    ///
    /// let four = NonZeroU32::new(4).expect("4 is not zero");
    /// let mut shares = Limits::default().shares(four).expect("there are ten places for four");
    /// let requests: Vec<u32> = shares.iter().map(|l| l.quotas()[0].requests().get()).collect();
    /// assert_eq!(requests, [13, 13, 12, 12]); // 50
    ///
    /// let number = 2; // of this process
    /// let limiter = Limiter::new(shares.swap_remove(number));
    /// assert_eq!(limiter.limits().connections.get(), 15);
    /// ```
    #[must_use]
    pub fn shares(&self, processes: NonZeroU32) -> Option<Vec<Self>> {
        (processes <= self.most_shares()).then(|| {
            (0..processes.get())
                .map(|number| self.share(&|whole| part(whole, number, processes)))
                .collect()
        })
    }

    fn share(&self, part: &dyn Fn(NonZeroU32) -> NonZeroU32) -> Self {
        let mut share = self.clone();
        for quota in &mut share.quotas {
            *quota = Quota::new(part(quota.requests()), quota.per()).unwrap_or(*quota);
        }
        share.in_flight = part(self.in_flight);
        share.connections = part(self.connections);
        if let Some(at_once) = self.at_once() {
            let burst = part(at_once).get() - 1;
            share.rules = share.rules.bucket(Burst::Of(burst));
        }
        share
    }

    fn most_shares(&self) -> NonZeroU32 {
        let quotas = self.quotas.iter().map(Quota::requests);
        let most = quotas.chain(self.at_once()).min();
        let most = most.unwrap_or(self.in_flight);
        most.min(self.in_flight).min(self.connections)
    }

    /// How many requests a leaky bucket takes at once: its burst, and the one that fills it.
    fn at_once(&self) -> Option<NonZeroU32> {
        let burst = match self.rules.bucket? {
            Burst::Of(burst) => burst,
            Burst::Auto => LEAST_BURST,
        };
        Some(NonZeroU32::MIN.saturating_add(burst))
    }
}

/// The part with this `number` of a whole divided by `of`. The first parts take the remainder.
fn part(whole: NonZeroU32, number: u32, of: NonZeroU32) -> NonZeroU32 {
    let even = whole.get() / of.get();
    let left = whole.get() % of.get();
    let part = even + u32::from(number < left);
    NonZeroU32::new(part).unwrap_or(NonZeroU32::MIN)
}

/// The burst that the shares divide in place of an automatic one, so that their sum stays below it.
const LEAST_BURST: u32 = 10;

#[cfg(test)]
mod tests;
