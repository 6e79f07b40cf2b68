//! The rules of all quotas.

use super::Ladder;
use crate::{
    Limits, Quota, Rules, WaitCause,
    clock::Tick,
    rule::{Rule, later},
};

/// The first of them stands inline: most limiters have no other.
#[derive(Debug)]
pub(super) struct Quotas {
    first: Rule,
    others: Vec<Rule>,
    quotas: Vec<Quota>,
    /// What the highest rung keeps within.
    highest: Rules,
}

// === impl Quotas ===

impl Quotas {
    pub(super) fn new(limits: &Limits, ladder: &Ladder) -> Self {
        let highest = limits.safe_against();
        let rule = |quota: &Quota| {
            let (quota, rules) = ladder.keeps(*quota, highest);
            Rule::new(quota, rules)
        };
        let quotas = limits.quotas().to_vec();
        #[expect(
            clippy::expect_used,
            reason = "limits begin with a quota and only get more"
        )]
        let (first, others) = quotas.split_first().expect("limits have a quota");
        Self {
            first: rule(first),
            others: others.iter().map(rule).collect(),
            quotas,
            highest,
        }
    }

    /// Keeps within what the ladder says now.
    #[cold]
    pub(super) fn keep(&mut self, ladder: &Ladder) {
        let rules = std::iter::once(&mut self.first).chain(&mut self.others);
        for (rule, quota) in rules.zip(&self.quotas) {
            let (quota, rules) = ladder.keeps(*quota, self.highest);
            rule.keep(quota, rules);
        }
    }

    #[inline]
    pub(super) fn each(&mut self, mut event: impl FnMut(&mut Rule)) {
        event(&mut self.first);
        for rule in &mut self.others {
            event(rule);
        }
    }

    /// Whether one more may be granted by all of them, as far as the clock was seen.
    #[inline]
    pub(super) fn are_open(&mut self, seen: Tick) -> bool {
        self.first.is_open(seen) && self.others.iter_mut().all(|rule| rule.is_open(seen))
    }

    /// From when on one more may be granted by all of them, and what decides that.
    pub(super) fn opens_at(&mut self, seen: Tick) -> (Option<Tick>, WaitCause) {
        let others = self.others.iter_mut().map(|rule| rule.opens_at(seen));
        others.fold(self.first.opens_at(seen), later)
    }

    /// When the unproven of one of them may have grown old.
    pub(super) fn age_at(&self) -> Tick {
        let others = self.others.iter().map(Rule::ages_at);
        others.fold(self.first.ages_at(), Tick::min)
    }

    /// The fullest window's live permits, as far as the clock was seen.
    pub(super) fn live(&self) -> u64 {
        let others = self.others.iter().map(Rule::live);
        others.fold(self.first.live(), u64::max)
    }

    /// The most that can have been counted in any interval of the first quota, so far.
    pub(super) fn certificate(&self) -> u64 {
        self.first.most_live()
    }
}
