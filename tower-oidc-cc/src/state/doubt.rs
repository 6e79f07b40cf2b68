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
    /// Whose calls were refused with the token in use, and not accepted since.
    refused: Vec<Call>,
    /// Whose calls were refused with its predecessor, and have not been heard of since.
    found_out: Vec<Call>,
    /// Whether the token in use was found dead.
    found_dead: bool,
    /// Whether the successor has helped those who found out.
    helped: bool,
    /// Whether it has let the distance grow.
    grown: bool,
    /// Whose calls no successor helped.
    helpless: Places,
    /// Who says yes and no to one and the same token.
    mixed: Places,
    /// Whether any call was accepted with the token in use, and with its predecessor.
    works: bool,
    worked: bool,
    /// How many tokens in a row were replaced at once, of which nothing was heard.
    unheard: usize,
}

/// Places, and when each was last refused.
#[derive(Debug, Default)]
struct Places(VecDeque<(Call, Timestamp)>);

// === impl Doubts ===

impl Doubts {
    /// How long the request for a successor has to wait, once the token was refused like this.
    pub(crate) fn refused_at(&mut self, now: Timestamp, refusal: Refusal) -> Duration {
        self.calm_down(now);
        let Some(call) = refusal.call else {
            return self.refused_by_hand(now, refusal.age);
        };
        // Where so many refuse it, it did not work before this call found it dead.
        let crowded = self.refused.len() >= CALLS;
        let news = !self.refused.contains(&call);
        if self.is_mixed(call) {
            self.mixed.remember(call, now);
            self.grow();
            return self.distance_at(now);
        }
        if news && self.refused.len() < CALLS {
            self.refused.push(call);
        }
        if self.found_out.contains(&call) || self.helpless.contain(call) {
            self.helpless.remember(call, now);
            if !self.helped {
                self.grow();
            }
        } else if news && !crowded && refusal.age >= OLD_ENOUGH && self.is_death(refusal) {
            if !self.found_dead && !refusal.call_was_accepted {
                self.unheard += 1;
            }
            self.found_dead = true;
            return Duration::ZERO;
        } else if news {
            self.grow();
        }
        self.distance_at(now)
    }

    /// It worked here, and now it does not: this is what a dead token looks like. So may a place
    /// that is heard of for the first time, if it does not happen over and over.
    fn is_death(&self, refusal: Refusal) -> bool {
        let unheard = self.level == 0 && self.unheard < UNHEARD;
        refusal.call_was_accepted || refusal.any_was_accepted && unheard
    }

    /// By hand: a token that served for a while has worked, for all that is known.
    fn refused_by_hand(&mut self, now: Timestamp, age: Duration) -> Duration {
        let first = !std::mem::replace(&mut self.found_dead, true);
        if age < LONG_ENOUGH {
            self.grow();
        } else if first {
            self.level = 0;
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
        self.found_dead = false;
        self.helped = false;
        self.grown = false;
        self.worked = std::mem::take(&mut self.works);
    }

    /// There is another token, and it is the same: it would be refused again. How long the next
    /// request has to wait.
    pub(crate) fn repeat_at(&mut self, now: Timestamp) -> Duration {
        self.grown = false;
        self.grow();
        self.distance_at(now)
    }

    /// A call was accepted with the token in use; `first` if it is the first that was.
    pub(crate) fn accepted_at(&mut self, now: Timestamp, call: Call, first: bool) {
        let helps = self.found_out.contains(&call);
        self.found_out.retain(|found| *found != call);
        if self.refused.contains(&call) {
            self.refused.retain(|refused| *refused != call);
            self.mixed.remember(call, now);
        } else {
            self.helpless.forget(call);
        }
        // After tokens that nobody could use, whoever can use this one ends it.
        let ends = first && !self.worked;
        self.works = true;
        if self.helpless.is_empty() && self.mixed.is_empty() && (helps || ends) {
            self.level = 0;
        }
        if helps {
            self.unheard = 0;
            self.helped = true;
        }
    }

    /// Whether this place says yes and no to one and the same token, which says nothing against it;
    /// or so many do that any may.
    pub(crate) fn is_mixed(&self, call: Call) -> bool {
        self.mixed.contain(call) || self.mixed.0.len() >= CALLS
    }

    /// The places whose next acceptance is news.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = Call> {
        let places = self.refused.iter().chain(&self.found_out).copied();
        places.chain(self.helpless.0.iter().map(|(call, _)| *call))
    }

    /// Whether nobody who was refused with the token in use is left.
    pub(crate) fn is_cleared(&self) -> bool {
        self.refused.is_empty()
    }

    /// Whether successors have not helped.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.level > 0
    }

    /// Once for each token, and not at all for the first one.
    fn grow(&mut self) {
        if !self.grown && self.asked.is_some() {
            self.grown = true;
            self.level += 1;
        }
    }

    fn distance_at(&self, now: Timestamp) -> Duration {
        let [.., longest] = DISTANCES;
        let distance = DISTANCES.get(self.level).copied().unwrap_or(longest);
        let since = self.asked.map_or(Duration::MAX, |asked| asked.age_at(now));
        distance.saturating_sub(since)
    }

    /// Forgets those who have not been refused for an hour.
    fn calm_down(&mut self, now: Timestamp) {
        self.helpless.calm_down(now);
        self.mixed.calm_down(now);
        if self.asked.is_some_and(|asked| asked.age_at(now) >= CALM) {
            self.level = 0;
            self.asked = None;
        }
    }
}

// === impl Places ===

impl Places {
    fn contain(&self, call: Call) -> bool {
        self.0.iter().any(|(place, _)| *place == call)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn remember(&mut self, call: Call, now: Timestamp) {
        self.forget(call);
        self.0.push_back((call, now));
        if self.0.len() > CALLS {
            self.0.pop_front();
        }
    }

    fn forget(&mut self, call: Call) {
        self.0.retain(|(place, _)| *place != call);
    }

    fn calm_down(&mut self, now: Timestamp) {
        self.0.retain(|(_, at)| at.age_at(now) < CALM);
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
/// place finds out. So often in a row it is taken for one.
const UNHEARD: usize = 3;
/// A token that is refused younger than this, where it was accepted, has not died: the place says
/// yes and no.
const OLD_ENOUGH: Duration = Duration::from_secs(10);
/// What was invalidated by hand at this age had worked.
const LONG_ENOUGH: Duration = Duration::from_secs(60);
const CALM: Duration = Duration::from_secs(60 * 60);
