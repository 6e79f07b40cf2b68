//! The rung above the proof on a path where it is wrong now and then, for hours.

use std::collections::VecDeque;

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Answered { refused: bool },
    Arrived,
}

/// Up to three milliseconds each way, and once a minute nothing passes for 300 ms.
fn there(rng: &mut fastrand::Rng, now: Duration) -> Duration {
    let left = Duration::from_nanos(
        60_000_000_000 - u64::try_from(now.as_nanos() % 60_000_000_000).expect("a minute fits"),
    );
    let stall = if left < ms(300) { left } else { Duration::ZERO };
    stall + Duration::from_micros(rng.u64(10_000..13_000))
}

/// When a service that keeps a log of the accepted refused, in so long a time, always backlogged.
/// It takes 900 ms to answer: meanwhile nobody learns of a stall.
fn refused_within(length: Duration, start_at: Rung) -> Vec<Duration> {
    let start = Instant::now();
    let mut rng = fastrand::Rng::with_seed(5);
    let mut requests = Requests::new(&Limits::default().start_at(start_at));
    let mut events: BinaryHeap<Reverse<(Duration, Event, usize)>> = BinaryHeap::new();
    let mut grants: VecDeque<Option<Grant>> = VecDeque::new();
    let mut gone = 0;
    let mut accepted: VecDeque<Duration> = VecDeque::new();
    let mut refused = Vec::new();
    let mut now = Duration::ZERO;
    while now < length {
        while let Some(Reverse((at, event, number))) = events.peek().copied() {
            if at > now {
                break;
            }
            events.pop();
            match event {
                Event::Arrived => {
                    while accepted.front().is_some_and(|old| *old + ms(1_000) <= at) {
                        accepted.pop_front();
                    }
                    let over = accepted.len() == 50;
                    if over {
                        refused.push(at);
                    } else {
                        accepted.push_back(at);
                    }
                    let back = ms(if over { 1 } else { 900 }) + there(&mut rng, at);
                    events.push(Reverse((
                        at + back,
                        Event::Answered { refused: over },
                        number,
                    )));
                }
                Event::Answered { refused } => {
                    let outcome = if refused {
                        Outcome::RateExceeded
                    } else {
                        Outcome::Answered
                    };
                    let grant = grants[number - gone].take().expect("answered once");
                    requests.answer(start + at, grant, outcome, true);
                    while grants.front().is_some_and(Option::is_none) {
                        grants.pop_front();
                        gone += 1;
                    }
                }
            }
        }
        let next = events.peek().map(|Reverse((at, ..))| *at);
        match requests.earliest(start + now) {
            Earliest::Now => {
                grants.push_back(Some(requests.admit(start + now)));
                let arrives = now + there(&mut rng, now);
                let number = gone + grants.len() - 1;
                events.push(Reverse((arrives, Event::Arrived, number)));
            }
            Earliest::At(at) => now = next.map_or(at - start, |next| next.min(at - start)),
            Earliest::OnReturn => now = next.expect("someone holds the permits"),
        }
    }
    refused
}

/// The first refusal of each episode: after a second of silence at least.
fn episodes(refused: &[Duration]) -> Vec<Duration> {
    let mut begins: Vec<Duration> = Vec::new();
    let mut last = None;
    for at in refused {
        if last.is_none_or(|last| *at > last + ms(1_000)) {
            begins.push(*at);
        }
        last = Some(*at);
    }
    begins
}

#[test]
fn above_the_proof_there_is_one_episode_for_each_probe_interval_at_the_most() {
    let refused = refused_within(Duration::from_secs(3 * 60 * 60), Rung::Paced);
    let episodes = episodes(&refused);
    // At the beginning, and 10, 20, 40 and 80 minutes after each other.
    assert!((2..=5).contains(&episodes.len()), "{episodes:?}");
    for (pair, minutes) in episodes.windows(2).zip([10, 20, 40, 80]) {
        let least = Duration::from_secs(minutes * 60);
        assert!(pair[1] - pair[0] >= least, "{episodes:?}");
    }
}

#[test]
fn by_the_proof_the_same_path_refuses_nothing() {
    let refused = refused_within(Duration::from_secs(20 * 60), Rung::Proven);
    assert!(refused.is_empty(), "{refused:?}");
}
