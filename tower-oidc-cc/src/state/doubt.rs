//! The invalidation backoff: whether a refused token is dead, and when its successor is asked for.
//! Arithmetic on `now`, no clock.

use std::{collections::VecDeque, time::Duration};

use crate::clock::Timestamp;

#[cfg(test)]
mod tests;

/// Which call it was: a number that calls of the same place share, and others hardly ever.
///
/// Whether the call that found a token dead fails with its successor, too, tells a dead token from
/// a place that refuses them all; and that call is known again by this.
pub(crate) type Call = u64;

/// What is known of a token when a call with it is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    /// `None` if somebody says so by hand, of whose calls nothing is known.
    pub(crate) call: Option<Call>,
    /// Whether calls of this place had been accepted with it.
    pub(crate) call_was_accepted: bool,
    /// Whether any call had.
    pub(crate) any_was_accepted: bool,
    /// How old it is.
    pub(crate) age: Duration,
}

/// What is remembered of refused tokens.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    /// How far the distance between requests for successors has grown.
    level: usize,
    /// When the last successor was asked for.
    asked: Option<Timestamp>,
    /// Whose calls were refused with the token in use.
    refused: Vec<Call>,
    /// Whose calls were refused with its predecessor, and have not been heard of since.
    found_out: Vec<Call>,
    /// The age at which the predecessor, and the token in use, were first refused.
    lived: Option<Duration>,
    lives: Option<Duration>,
    /// Whether the successor has helped those who found out, or has let the distance grow.
    judged: bool,
    /// Whose calls no successor helped, and when they were last refused.
    helpless: VecDeque<(Call, Timestamp)>,
    /// Whether any call was accepted with the token in use, and with its predecessor.
    works: bool,
    worked: bool,
    /// How many tokens in a row were replaced at once, of which nothing was heard.
    unheard: usize,
    /// The tokens that died early within a day: when, and how old.
    deaths: VecDeque<(Timestamp, Duration)>,
}

// === impl Doubts ===

impl Doubts {
    /// How long the request for a successor has to wait, once the token was refused like this.
    pub(crate) fn refused_at(&mut self, now: Timestamp, refusal: Refusal) -> Duration {
        self.calm_down(now);
        let first = self.lives.is_none();
        self.lives.get_or_insert(refusal.age);
        let Some(call) = refusal.call else {
            return self.refused_by_hand(now, refusal.age, first);
        };
        let again = self.found_out.contains(&call) || self.is_helpless(call);
        if !self.refused.contains(&call) && self.refused.len() < CALLS {
            self.refused.push(call);
        }
        if again {
            self.remember_helpless(call, now);
        } else if refusal.call_was_accepted {
            // It worked here, and now it does not: this is what a dead token looks like.
            return Duration::ZERO;
        } else if refusal.any_was_accepted
            && self.level == 0
            && self.unheard < UNHEARD
            && refusal.age >= OLD_ENOUGH
        {
            self.unheard = self.unheard.saturating_add(usize::from(first));
            return Duration::ZERO;
        }
        self.grow();
        self.distance_at(now)
    }

    /// By hand: a token that served for a while has worked, for all that is known.
    fn refused_by_hand(&mut self, now: Timestamp, age: Duration, first: bool) -> Duration {
        if age < LONG_ENOUGH {
            self.grow();
        } else if first {
            self.level = 0;
            self.died(now, age);
            return Duration::ZERO;
        }
        self.distance_at(now)
    }

    /// A successor of a refused token is asked for.
    pub(crate) fn ask_at(&mut self, now: Timestamp) {
        self.asked = Some(now);
    }

    /// There is another token.
    pub(crate) fn succeed(&mut self) {
        self.found_out = std::mem::take(&mut self.refused);
        self.lived = self.lives.take();
        self.judged = false;
        self.worked = std::mem::take(&mut self.works);
    }

    /// A call was accepted with the token in use; `first` if it is the first that was. Returns how
    /// old its predecessor had grown, if this shows that it died.
    pub(crate) fn accepted_at(
        &mut self,
        now: Timestamp,
        call: Call,
        first: bool,
    ) -> Option<Duration> {
        let helped = self.found_out.contains(&call);
        self.found_out.retain(|found| *found != call);
        self.helpless.retain(|(helpless, _)| *helpless != call);
        self.refused.retain(|refused| *refused != call);
        // After tokens that nobody could use, whoever can use this one ends it.
        let ends = first && !self.worked;
        self.works = true;
        if self.helpless.is_empty() && (helped || ends) {
            self.level = 0;
        }
        if !helped {
            return None;
        }
        self.unheard = 0;
        self.judged = true;
        let age = self.lived.take()?;
        self.died(now, age);
        Some(age)
    }

    /// Whether nobody who was refused with the token in use is left.
    pub(crate) fn is_cleared(&self) -> bool {
        self.refused.is_empty()
    }

    /// Whether successors have not helped.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.level > 0
    }

    /// The age at which tokens die, once three of them have within a day.
    pub(crate) fn real_life_at(&self, now: Timestamp) -> Option<Duration> {
        let deaths = self.deaths.iter().rev();
        let lately = deaths.take_while(|(at, _)| at.age_at(now) < DAY);
        let ages: Vec<_> = lately.take(DEATHS).map(|(_, age)| *age).collect();
        (ages.len() == DEATHS).then(|| ages.into_iter().min())?
    }

    /// One that was refused as it came shows nothing about how long others live.
    fn died(&mut self, now: Timestamp, age: Duration) {
        if age < OLD_ENOUGH {
            return;
        }
        self.deaths.truncate(DEATHS);
        self.deaths.push_back((now, age));
        while self.deaths.len() > DEATHS {
            self.deaths.pop_front();
        }
    }

    /// Once for each token, and not at all for the first one or if a successor has helped.
    fn grow(&mut self) {
        if !self.judged && self.asked.is_some() {
            self.judged = true;
            self.level = self.level.saturating_add(1);
        }
    }

    fn distance_at(&self, now: Timestamp) -> Duration {
        let [.., longest] = DISTANCES;
        let distance = DISTANCES.get(self.level).copied().unwrap_or(longest);
        let since = self.asked.map_or(Duration::MAX, |asked| asked.age_at(now));
        distance.saturating_sub(since)
    }

    fn is_helpless(&self, call: Call) -> bool {
        self.helpless.iter().any(|(helpless, _)| *helpless == call)
    }

    fn remember_helpless(&mut self, call: Call, now: Timestamp) {
        self.helpless.retain(|(helpless, _)| *helpless != call);
        self.helpless.push_back((call, now));
        if self.helpless.len() > CALLS {
            self.helpless.pop_front();
        }
    }

    /// Forgets those who have not been refused for an hour.
    fn calm_down(&mut self, now: Timestamp) {
        self.helpless.retain(|(_, at)| at.age_at(now) < CALM);
        if self.asked.is_some_and(|asked| asked.age_at(now) >= CALM) {
            self.level = 0;
            self.asked = None;
        }
    }
}

/// Between requests that do not help: an hour of constant refusal then sees them at 0, 0, 1, 3, 7,
/// 12, 17, ... minutes, fifteen in all. Five minutes are what callers wait at most once newer
/// tokens are good.
const DISTANCES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_secs(60),
    Duration::from_secs(2 * 60),
    Duration::from_secs(4 * 60),
    Duration::from_secs(5 * 60),
];
/// More places than that which refuse all tokens are one for all that matters: the distance is
/// shared.
const CALLS: usize = 16;
/// A place that is called for the first time and refuses cannot be told from a death that a new
/// place finds out. So often in a row it is taken for one ...
const UNHEARD: usize = 3;
/// ... of a token that is not younger than this.
const OLD_ENOUGH: Duration = Duration::from_secs(10);
/// What was invalidated by hand at this age had worked.
const LONG_ENOUGH: Duration = Duration::from_secs(60);
/// So many early deaths within a day are the rule, and the next renewal comes before it.
const DEATHS: usize = 3;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const CALM: Duration = Duration::from_secs(60 * 60);
