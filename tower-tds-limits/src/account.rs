//! Account of a limiter's requests: how many are granted, proven, lost or unsent. It is arithmetic on
//! `now`, without a lock; the only clock it reads is that of suspensions.
//!
//! Requests are *granted* and sent at once, and *proven* by their response. Without one, a request is
//! *pending* until the end of the time in which it can be counted. If it was never sent, it is *unsent*.

pub(crate) mod reactions;
mod times;

use std::{cmp::Reverse, collections::BinaryHeap, mem, time::Duration};

use tokio::time::Instant;
use tower_tds_outcome::Outcome;

use self::{
    reactions::{Reactions, data_sockets, is_within},
    times::{UsualTimes, octave},
};
use crate::{
    clock::{self, Epoch, Tick, nanos},
    error::WaitCause,
    limits::{Limits, Proof, Quota, Share},
    rule::{Pace, QuotaRules},
    wait::{CallDeadline, Limit, Priority},
};

/// Requests in flight, and what the rules of each quota record about them.
#[derive(Debug)]
pub(crate) struct Account {
    limits: Limits,
    epoch: Epoch,
    /// Time of the last event.
    seen: Tick,
    pub(crate) in_flight: u32,
    /// Rules of each quota.
    rules: Vec<QuotaRules>,
    times: UsualTimes,
    pub(crate) reactions: Reactions,
    lease: Option<Lease>,
    /// Pending requests, ordered by the end of the time in which they can be counted.
    pending: BinaryHeap<Reverse<(Tick, Granted)>>,
    /// Number of grants so far.
    pub(crate) granted: u64,
}

/// Share of the limits for a time.
#[derive(Debug)]
struct Lease {
    share: Share,
    ends: Tick,
    /// Why there is no share after that, if it is known.
    why: Option<&'static str>,
    /// Whether more sockets are open than the share allows.
    has_too_many: bool,
    /// For how long the machine had been suspended when the share was set.
    suspended: Duration,
}

/// One grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Granted {
    at: Tick,
    /// Whether the request is to close its socket.
    pub(crate) closes_socket: bool,
    /// Whether it is a token request. Its response time is no evidence about data requests.
    is_high: bool,
    octave: u8,
    /// Whether its time ends with the response body, and not with its head.
    pub(crate) has_body: bool,
    /// Whether the request asks for a range, so that a 416 is most often about that.
    pub(crate) has_range: bool,
    /// Its deadline.
    until: Tick,
}

// === impl Account ===

impl Account {
    pub(crate) fn new(limits: &Limits) -> Self {
        let rule = |quota: &Quota| QuotaRules::new(*quota, limits.rules_of(quota));
        Self {
            epoch: Epoch::default(),
            seen: Tick::ZERO,
            in_flight: 0,
            rules: limits.quotas().iter().map(rule).collect(),
            times: UsualTimes::default(),
            pending: BinaryHeap::new(),
            granted: 0,
            limits: limits.clone(),
            reactions: Reactions::default(),
            lease: None,
        }
    }

    /// Live permits of the fullest window at `now`.
    pub(crate) fn live_at(&mut self, now: Instant) -> u64 {
        let now = self.advance(now);
        let live = self.rules.iter().map(|rules| rules.live(now));
        live.max().unwrap_or_default()
    }

    /// Returns the first quota as it applies now, and until when it is lowered at least.
    pub(crate) fn believed(&self) -> (Quota, Option<Instant>) {
        let until = self.reactions.slow_until();
        let (quota, _) = self.kept(self.limits.first);
        (quota, until.and_then(|until| self.instant(until)))
    }

    /// Returns the end of the silence after a refusal, if it is after `now`.
    pub(crate) fn silent_until(&self, now: Instant) -> Option<Instant> {
        self.instant(self.reactions.silent_until)
            .filter(|until| now < *until)
    }

    /// Returns what 416s have left of the sockets, and until when, if they have lowered them.
    pub(crate) fn sockets(&self) -> Option<(u32, Instant)> {
        let (most, until) = self.reactions.most_sockets(self.most_sockets())?;
        Some((most, self.instant(until)?))
    }

    /// Records a 416. Returns whether it lowers the limit of sockets: it does not if there are
    /// `too_many` already.
    #[cold]
    pub(crate) fn lower_sockets(&mut self, now: Instant, grant: Granted, too_many: bool) -> bool {
        let now = self.advance(now);
        self.reactions.lower_sockets(now, grant.at, too_many)
    }

    /// Records a response head, which proves the request under [`Proof::Head`](crate::Proof::Head).
    /// Returns the first quota as it applies from now on, if a 423 has lowered it, or an accepted response has
    /// restored it.
    #[inline]
    pub(crate) fn prove_by_head(
        &mut self,
        now: Instant,
        grant: Granted,
        outcome: Outcome,
        whole: bool,
    ) -> Option<Quota> {
        let now = self.advance(now);
        let is_evidence = is_within(outcome);
        let changed = match outcome {
            Outcome::RateExceeded => self.reactions.lower_rate(now, grant.at),
            _ => is_evidence && self.reactions.restore_rate(now),
        };
        if changed {
            self.keep(now);
        }
        // Gateways refuse sooner than the service behind them answers.
        if is_evidence && (whole || !grant.has_body) {
            self.learn_at(now, grant, now.since(grant.at), true);
        }
        if whole || self.limits.proof == Proof::Head {
            self.prove(now, grant, is_evidence);
        }
        if whole {
            self.end();
        }
        changed.then(|| self.believed().0)
    }

    /// Records the end of a response body. It proves the request, if the head did not.
    pub(crate) fn prove_by_end(&mut self, now: Instant, grant: Granted) {
        let now = self.advance(now);
        self.prove(now, grant, true);
        self.end();
    }

    /// Records the time that a call took, if it is `whole` or its deadline has passed: at most the time that
    /// it had. One that its reader has left earlier shows nothing.
    pub(crate) fn learn(&mut self, now: Instant, grant: Granted, took: u64, whole: bool) {
        let now = self.advance(now);
        self.learn_at(now, grant, took, whole);
    }

    #[inline]
    fn learn_at(&mut self, now: Tick, grant: Granted, took: u64, whole: bool) {
        if (whole || grant.until <= now) && !grant.is_high {
            let had = grant.until.since(grant.at);
            self.times.learn(grant.octave, took.min(had));
        }
    }

    /// Records the end of a sent request without a response, which may still be counted for a time.
    pub(crate) fn lose(&mut self, now: Instant, grant: Granted, after: Duration) {
        let now = self.advance(now);
        let until = now.plus(nanos(after));
        self.pending.push(Reverse((until, grant)));
        self.end();
    }

    /// Takes back the grant of a request that never reached the wire.
    pub(crate) fn withdraw(&mut self, grant: Granted) {
        self.each(|rules| rules.withdraw(grant.at));
        self.end();
    }

    /// Frees one slot in flight.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Advances the account to `now`.
    ///
    /// Time never runs back: a caller that read the clock earlier than the last event gets the time
    /// of that event.
    #[inline]
    fn advance(&mut self, now: Instant) -> Tick {
        let now = self.epoch.tick(now).max(self.seen);
        self.seen = now;
        if self.next_pending_at() <= now {
            self.prove_pending(now);
        }
        now
    }

    /// When the next pending request can no longer be counted.
    #[inline]
    fn next_pending_at(&self) -> Tick {
        let next = self.pending.peek();
        next.map_or(Tick::NEVER, |Reverse((at, _))| *at)
    }

    /// Proves the pending requests that can no longer be counted.
    #[cold]
    fn prove_pending(&mut self, now: Tick) {
        while self.next_pending_at() <= now
            && let Some(Reverse((at, grant))) = self.pending.pop()
        {
            // Their response times are unknown, so they are no evidence for the bucket.
            self.each(|rules| rules.prove(at, grant.at, false));
        }
    }

    #[inline]
    fn each(&mut self, event: impl FnMut(&mut QuotaRules)) {
        self.rules.iter_mut().for_each(event);
    }

    #[inline]
    fn has_room(&self) -> bool {
        let whole = self.most_sockets();
        let lowered = self.reactions.most_sockets(whole);
        let lowered = lowered.filter(|(_, until)| self.seen < *until);
        let most = match lowered {
            None if self.lease.is_none() => u32::MAX,
            // A request that gets no socket would only hold its permit.
            lowered => {
                let most = lowered.map_or(whole, |(most, _)| most);
                data_sockets(most).min(most)
            }
        };
        self.in_flight < self.limits.most_in_flight().get().min(most)
    }

    /// Returns the first time at which one more may be granted, and the cause of the wait. The time is
    /// [`Tick::NEVER`] while it depends on an event.
    #[inline]
    fn opens_at(&mut self, priority: Priority) -> (Tick, WaitCause) {
        let seen = self.seen;
        if let Some(lease) = self.lease.as_ref().filter(|lease| lease.ends <= seen) {
            return (Tick::NEVER, WaitCause::Share(lease.why));
        }
        // A token request needs no slot in flight, because the requests that hold the slots may
        // depend on it.
        if !self.has_room() && priority != Priority::High {
            return (Tick::NEVER, WaitCause::InFlight);
        }
        let rules = self.rules.iter().map(|rules| rules.opens_at(seen));
        let opens = rules.fold(Tick::ZERO, Tick::max);
        if self.reactions.silent_until > opens {
            return (self.reactions.silent_until, WaitCause::Silence);
        }
        (opens, WaitCause::Rate)
    }

    /// Returns the limit of sockets, before any refusal.
    fn most_sockets(&self) -> u32 {
        let whole = self.limits.connections.get();
        let lease = self.lease.as_ref();
        lease.map_or(whole, |lease| lease.share.connections)
    }

    /// Applies a share of the limits, and grants nothing after `until`. While more sockets are open
    /// than the share allows, each request closes its own.
    pub(crate) fn set_share(
        &mut self,
        share: Share,
        until: Instant,
        why: Option<&'static str>,
        now: Instant,
        open: u32,
    ) {
        let now = self.advance(now);
        let is_empty = share.is_empty(&self.limits);
        self.lease = Some(Lease {
            share,
            ends: if is_empty {
                now
            } else {
                self.epoch.tick(until)
            },
            why,
            has_too_many: open > share.connections,
            suspended: clock::suspended(),
        });
        self.keep(now);
    }

    /// Whether the machine has been suspended since the share was set. If it was, the share is
    /// over, because the clock that measures its end stood still.
    pub(crate) fn was_suspended(&self, suspended: Duration) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|lease| suspended > lease.suspended + SHORT)
    }

    /// Returns the share that is all of the limits, as refusals have left them.
    pub(crate) fn whole(&self) -> Share {
        let (kept, pace) = self.reactions.lowered(self.limits.first);
        let burst = self.limits.rules.bucket;
        let places = burst.map_or(kept.requests().get(), |burst| burst.places(kept));
        Share {
            requests: kept.requests().get(),
            places: pace.map_or(places, |pace| pace.places.min(places)),
            connections: self.limits.connections.get(),
        }
    }

    /// Returns the smallest share that holds all requests sent so far.
    pub(crate) fn held(&mut self, now: Instant) -> Share {
        let now = self.advance(now);
        let first = u64::from(self.limits.first.requests().get());
        let mut held = Share::default();
        for (rule, quota) in self.rules.iter().zip(self.limits.quotas()) {
            let (requests, places) = rule.held(now);
            let requests = (requests * first).div_ceil(quota.requests().get().into());
            held.requests = held
                .requests
                .max(u32::try_from(requests).unwrap_or(u32::MAX));
            held.places = held.places.max(u32::try_from(places).unwrap_or(u32::MAX));
        }
        held
    }

    /// Returns what applies of `quota`: its share, lowered, and the pace at which it is used.
    fn kept(&self, quota: Quota) -> (Quota, Option<Pace>) {
        let lease = self.lease.as_ref();
        let part = lease.map(|lease| lease.share.part(quota, self.limits.first));
        self.reactions.lowered(part.unwrap_or(quota))
    }

    fn keep(&mut self, now: Tick) {
        let lease = self.lease.as_ref();
        let places = lease.map_or(u64::MAX, |lease| lease.share.places.into());
        let mut rules = mem::take(&mut self.rules);
        for (rule, quota) in rules.iter_mut().zip(self.limits.quotas()) {
            let (kept, pace) = self.kept(*quota);
            let pace = pace.filter(|_| self.limits.is_shortest(*quota));
            let rules = self.limits.rules_of(quota);
            rule.keep(kept, rules, pace, places, now);
        }
        self.rules = rules;
    }

    /// Records the proof that the request was counted by `now`.
    #[inline]
    fn prove(&mut self, now: Tick, grant: Granted, is_evidence: bool) {
        let is_evidence = is_evidence && !grant.is_high;
        self.each(|rules| rules.prove(now, grant.at, is_evidence));
    }

    fn instant(&self, at: Tick) -> Option<Instant> {
        (at < Tick::NEVER).then(|| self.epoch.instant(at)).flatten()
    }
}

impl Limit for Account {
    type Granted = Granted;

    #[inline]
    fn opens(&mut self, priority: Priority, now: Instant) -> (Option<Instant>, WaitCause) {
        self.advance(now);
        if self.lease.is_some()
            && self.was_suspended(clock::suspended())
            && let Some(lease) = &mut self.lease
        {
            lease.ends = Tick::ZERO;
        }
        let (mut at, cause) = self.opens_at(priority);
        if at <= self.seen {
            return (Some(now), cause);
        }
        if cause == WaitCause::Rate {
            at = at.min(self.next_pending_at());
        }
        let (seen, lease) = (self.seen, self.lease.as_ref());
        if lease.is_some_and(|lease| lease.ends <= seen.max(at)) {
            at = Tick::NEVER;
        }
        (self.instant(at), cause)
    }

    #[inline]
    fn admit(&mut self, priority: Priority, deadline: Option<&CallDeadline>) -> Granted {
        self.in_flight += 1;
        self.granted += 1;
        let seen = self.seen;
        self.each(|rules| rules.grant(seen));
        Granted {
            at: seen,
            closes_socket: self.reactions.closes_socket(seen)
                || self.lease.as_ref().is_some_and(|lease| lease.has_too_many),
            is_high: priority == Priority::High,
            octave: octave(deadline),
            has_body: deadline.is_some_and(|deadline| deadline.has_body),
            has_range: false,
            until: deadline.map_or(Tick::NEVER, |deadline| self.epoch.tick(deadline.at)),
        }
    }

    fn usual(&self, deadline: &CallDeadline) -> Duration {
        self.times.usual(octave(Some(deadline)))
    }
}

/// Two clocks are read one after the other, and a task may be preempted in between, so shorter
/// differences are no suspension.
const SHORT: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
