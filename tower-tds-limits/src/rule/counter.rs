//! Safe against counters that weigh the window before: `previous * (1 - x) + current`.
//!
//! Such a counter keeps two numbers for windows that begin at a time `phi` nobody tells. Each
//! proof is put at the latest instant at which its request can have been counted, each unproven
//! request at now, and one more may be sent if the sum fits for *every* `phi`. Moving a count
//! later never lowers such a sum, so the server's own sum, whichever its `phi`, fits too.
//!
//! With `N(t)` the proofs before `t`, `P` the period, `G` the requests granted so far and
//! `K = G + 1 - limit`, the sum for one `phi` fits as soon as `K` lies below the chord that joins
//! `N(phi - P)` and `N(phi)`, read at `now - P`: from `phi + P * (K - a) / (b - a)` on, with
//! `a = N(phi - P)` and `b = N(phi)`. Between two proofs the sum only rises with `phi`, so that
//! chords matter that begin or end at a proof, and of these only such with `a < K <= b`: those
//! that end within a period after proof `K`, and those that begin within one before it.

use super::window::Window;
use crate::clock::Tick;

/// From when on one more may be granted, as far as the clock was seen at `now`. The proof window has
/// its own say: together they are exact once it opens.
pub(super) fn opens_at(window: &Window, now: Tick) -> Tick {
    let Some(over) = window.over() else {
        return Tick::ZERO;
    };
    // Fewer than the limit in two periods: no window can be full.
    if over < window.forgotten() {
        return Tick::ZERO;
    }
    let (number, period) = (over.saturating_add(1), window.hold());
    let runs = window.runs();
    let of_number = window.place(over);
    let mut opens = Tick::ZERO;

    // Chords that end at a proof: `b` counts all before it, `a` those that are a period older.
    let ends = of_number.saturating_add(1);
    let oldest = runs
        .get(ends)
        .map_or(Tick::NEVER, |run| run.at.minus(period));
    let begin = runs.partition_point(|run| run.at < oldest);
    let mut begins = runs.iter().skip(begin).peekable();
    let (mut before, mut until) = (window.before(begin), window.before(ends));
    for end in runs.iter().skip(ends) {
        if end.at > now {
            break;
        }
        let from = end.at.minus(period);
        while let Some(begin) = begins.next_if(|begin| begin.at < from) {
            before = begin.until;
        }
        if before >= number {
            break;
        }
        opens = later(opens, now, end.at, period, number, before, until);
        until = end.until;
    }

    // Chords that begin at a proof, which is counted in the window before: they end a period after.
    let Some(last) = runs.get(of_number) else {
        return opens;
    };
    let begin = runs.partition_point(|run| run.at.plus(period) <= last.at);
    let mut before = window.before(begin);
    let mut until = number;
    let mut ends = runs.iter().skip(of_number).peekable();
    for begin in runs.iter().skip(begin) {
        let phi = begin.at.plus(period);
        if phi > now || before >= number {
            break;
        }
        while let Some(end) = ends.next_if(|end| end.at < phi) {
            until = until.max(end.until);
        }
        opens = later(opens, now, phi, period, number, before, until);
        before = begin.until;
    }
    opens
}

/// The later of `opens` and the time from which on the chord fits, where that is not over.
#[inline]
fn later(
    opens: Tick,
    now: Tick,
    phi: Tick,
    period: u64,
    number: u64,
    before: u64,
    until: u64,
) -> Tick {
    let (rise, whole) = (number.saturating_sub(before), until.saturating_sub(before));
    let wide = |a: u64, b: u64| u128::from(a).saturating_mul(u128::from(b));
    let rises = wide(period, rise);
    if rises <= wide(now.since(phi), whole) {
        return opens;
    }
    let after = rises.div_ceil(u128::from(whole.max(1)));
    opens.max(phi.plus(u64::try_from(after).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests;
