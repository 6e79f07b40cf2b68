//! Safe against leaky buckets: a level that falls steadily and rises by one with each request.

use crate::{
    Burst, Quota,
    clock::{Tick, nanos},
};

/// A leaky bucket into which each request falls when it is proven.
///
/// A bucket's level is highest if its requests fell as late as they can have: the proven at
/// their proofs, the unproven all at now. If one more fits then, it fits.
///
/// An automatic burst is no proof where answers are slow, and there is no sense in stopping for it:
/// what has been unproven for long, and was overtaken by an answer, leaves its count ([`Young`]).
/// While nothing at all is answered the network stands still, and nothing leaves it; so that this
/// can be told from a few slow calls, one more may then be sent, which a bucket of ten takes.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// The time in which the level falls by one.
    interval: u64,
    burst: Burst,
    /// The burst of a bucket that holds the whole quota.
    most: u64,
    unproven: u64,
    young: Young,
    /// When the proven requests will have drained.
    empty_at: Tick,
    /// About the median time from grant to answer, and the burst that allows for it.
    usual: u64,
    automatic: u64,
    /// Proofs to come until the burst may be as large as it likes, if it begins carefully.
    careful_for: u64,
}

/// The unproven by their age, in generations.
#[derive(Debug)]
struct Young {
    /// The newest first: since when it has been the newest, and how many of it are unproven.
    generations: [(Tick, u64); GENERATIONS],
    /// When the next one begins.
    turns_at: Tick,
    /// The unproven that are older than all of them.
    old: u64,
    /// Not sent after the last of the answered.
    answered: Tick,
    /// The same at the last turn: what a stall has held up is overtaken at its end, and answered a
    /// moment later.
    answered_before: Tick,
    /// How many more may be sent to find out whether anything is answered.
    probes: u64,
}

// === impl Bucket ===

impl Bucket {
    pub(crate) fn new(quota: Quota, burst: Burst) -> Self {
        Self {
            interval: nanos(quota.spacing()),
            burst,
            most: u64::from(quota.requests().get()) - 1,
            unproven: 0,
            young: Young::new(),
            empty_at: Tick::ZERO,
            usual: 0,
            automatic: LEAST,
            careful_for: 0,
        }
    }

    /// Begins with one request at a time, and allows larger bursts as answers come: whoever has
    /// just been refused is refused a few times more at the most, and not as often as a burst is
    /// large.
    pub(crate) fn begin_carefully(&mut self) {
        // What is in flight was sent before.
        self.careful_for = CAREFUL + self.unproven;
    }

    /// Begins as if it had been filled at the beginning.
    pub(crate) fn drain(&mut self) {
        let level = self.most + 1;
        self.empty_at = Tick::ZERO.plus(self.interval.saturating_mul(level));
    }

    /// The clock was seen at `now`.
    #[inline]
    pub(crate) fn see(&mut self, now: Tick) {
        if self.young.turns_at <= now {
            self.young.turn(now, self.usual);
        }
    }

    /// Whether one more may be granted at `now`.
    #[inline]
    pub(crate) fn is_open(&self, now: Tick) -> bool {
        self.opens_at().is_some_and(|at| at <= now)
    }

    /// From when on one more may be granted; `None` while that depends on a proof to come, or on
    /// age.
    #[inline]
    pub(crate) fn opens_at(&self) -> Option<Tick> {
        let (old, probes) = match self.burst {
            Burst::Auto => (self.young.old, self.young.probes),
            Burst::Of(_) => (0, 0),
        };
        let burst = self.burst().saturating_add(probes).min(self.most);
        let room = burst.checked_sub(self.unproven.saturating_sub(old))?;
        Some(self.empty_at.minus(self.interval.saturating_mul(room)))
    }

    /// When some of the unproven may be old enough to be counted no more.
    pub(crate) fn ages_at(&self) -> Tick {
        match self.burst {
            Burst::Auto => self.young.turns_at,
            Burst::Of(_) => Tick::NEVER,
        }
    }

    #[inline]
    pub(crate) fn grant(&mut self) {
        self.unproven += 1;
        self.young.add();
    }

    /// A request that was not granted before `granted` is proven to have been counted no later
    /// than `at`.
    #[inline]
    pub(crate) fn prove(&mut self, at: Tick, granted: Tick) {
        self.unproven = self.unproven.saturating_sub(1);
        self.young.remove(granted);
        let mut drains = self.interval;
        if self.careful_for > 0 || self.burst == Burst::Of(0) {
            self.careful_for = self.careful_for.saturating_sub(1);
            let spare = if self.burst() == 0 { TICK } else { 0 };
            drains += spare;
        }
        self.empty_at = self.empty_at.max(at).plus(drains);
    }

    /// A request that was not granted before `granted` was answered.
    #[inline]
    pub(crate) fn answered(&mut self, granted: Tick) {
        self.young.answered = self.young.answered.max(granted);
    }

    /// A request that was granted was never sent.
    pub(crate) fn withdraw(&mut self, granted: Tick) {
        self.unproven = self.unproven.saturating_sub(1);
        self.young.remove(granted);
    }

    #[inline]
    fn burst(&self) -> u64 {
        let burst = match self.burst {
            Burst::Of(burst) => u64::from(burst),
            Burst::Auto => self.automatic,
        };
        let careful = match self.careful_for {
            0 => u64::MAX,
            1..=10 => 10,
            11..=20 => 2,
            21..=30 => 1,
            31.. => 0,
        };
        burst.min(self.most).min(careful)
    }

    /// Moves the median's estimate a step towards `took`.
    #[inline]
    pub(crate) fn learn(&mut self, took: u64) {
        if took == self.usual {
            return;
        }
        let step = (self.usual / STEPS).max(LEAST_STEP);
        self.usual = if took > self.usual {
            self.usual.saturating_add(step).min(took)
        } else {
            self.usual.saturating_sub(step).max(took)
        };
        self.allow();
    }

    #[inline]
    fn allow(&mut self) {
        let usually_unproven = self.usual / self.interval;
        let allowed = (usually_unproven + SPARE).max(LEAST);
        self.automatic = allowed;
    }
}

// === impl Young ===

impl Young {
    const fn new() -> Self {
        Self {
            generations: [(Tick::ZERO, 0); GENERATIONS],
            turns_at: Tick::ZERO,
            old: 0,
            answered: Tick::ZERO,
            answered_before: Tick::ZERO,
            probes: 0,
        }
    }

    #[inline]
    fn add(&mut self) {
        let [(_, newest), ..] = &mut self.generations;
        *newest += 1;
    }

    /// Of those that were granted when the clock had last been seen at `granted`.
    #[inline]
    fn remove(&mut self, granted: Tick) {
        // A grant that was withdrawn may be another generation's than it is taken for: whichever has one
        // then gives it, so that all of them together are always the unproven.
        let mut generations = self.generations.iter_mut();
        let of = generations.find(|(since, count)| *since <= granted && *count > 0);
        if let Some((_, count)) = of {
            *count = count.saturating_sub(1);
        } else if self.old > 0 {
            self.old = self.old.saturating_sub(1);
        } else if let Some((_, count)) = self.generations.iter_mut().find(|(_, count)| *count > 0) {
            *count = count.saturating_sub(1);
        }
    }

    /// A new generation. The oldest is old if it was overtaken: it has been here for at least as
    /// long as all the others together have taken. If it was not, it waits with the next.
    #[cold]
    fn turn(&mut self, now: Tick, usual: u64) {
        let long = usual.saturating_mul(USUAL_ANSWERS).max(LONG);
        let [.., next, oldest] = &mut self.generations;
        if next.0 <= self.answered_before {
            self.old += oldest.1;
        } else if oldest.1 > 0 {
            *next = (oldest.0, next.1 + oldest.1);
        }
        self.answered_before = self.answered;
        self.generations.rotate_right(1);
        let [newest, ..] = &mut self.generations;
        *newest = (now, 0);
        let [.., (since, left)] = self.generations;
        let long_since = now.since(since).checked_sub(long).filter(|_| left > 0);
        self.probes = long_since.map_or(0, probes);
        self.turns_at = now.plus(long / OTHERS);
    }
}

/// Without a burst there is no room for a gateway that reads its clock once per turn of its loop:
/// nginx at 50 a second needed 21 ms between requests, and not 20 (the study behind this crate).
const TICK: u64 = 1_000_000;

/// Ten answers for each of the bursts 0, 1, 2 and 10: full speed after a few seconds, and one or two
/// refusals for each try of a rung that is too high (the study behind this crate simulated it).
const CAREFUL: u64 = 40;

/// One less than the burst that gateways are usually configured with (nginx's own examples have 5
/// to 20, ten in the middle): by a gateway without any, nine are refused at first.
const LEAST: u64 = 9;

/// Beyond those that are usually unproven: without spare ones each grant waits for a proof.
const SPARE: u64 = 5;

/// The estimate follows a change of the median by half within about eleven requests.
const STEPS: u64 = 16;

/// So that the estimate can leave zero: 0.5 ms.
const LEAST_STEP: u64 = 500_000;

/// A second: three times the stalls of the study, for which nothing may leave the count.
const LONG: u64 = 1_000_000_000;

/// And so many usual answers: of lognormal ones (sigma 0.5) one in 60,000 takes longer.
const USUAL_ANSWERS: u64 = 8;

/// How many may be sent to find out whether anything is answered, so long after the first: if that one is
/// slow itself there are more, and soon many more, because a network seldom stands still for so long and
/// twenty slow calls are often made together.
fn probes(more: u64) -> u64 {
    match more.checked_sub(MORE_PROBES) {
        None => 1,
        Some(later) => 1_u64
            .checked_shl(u32::try_from(later / DOUBLED).unwrap_or(u32::MAX))
            .unwrap_or(u64::MAX)
            .saturating_add(1),
    }
}

/// The study's stalls of three seconds are over by then.
const MORE_PROBES: u64 = 2_500_000_000;

const DOUBLED: u64 = 500_000_000;

/// What is old is older than all generations but the one in which it was granted.
const GENERATIONS: usize = 9;

const OTHERS: u64 = 8;

#[cfg(test)]
mod tests;
