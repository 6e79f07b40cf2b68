use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::{Doubts, Refusal};
use crate::clock::Timestamp;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A time line, and what happens on it.
struct Story {
    now: Timestamp,
    doubts: Doubts,
    /// When the token in use came, and what was accepted with it.
    born: Timestamp,
    accepted: Vec<u64>,
}

impl Story {
    fn new() -> Self {
        let now = Timestamp {
            steady: Instant::now(),
            wall: SystemTime::UNIX_EPOCH + secs(1_000_000_000),
        };
        Self {
            now,
            doubts: Doubts::default(),
            born: now,
            accepted: Vec::new(),
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now.checked_add(time).unwrap();
    }

    fn accept(&mut self, call: u64) {
        let first = self.accepted.is_empty();
        self.accepted.push(call);
        self.doubts.accepted_at(self.now, call, first);
    }

    /// Is refused, and says in how many seconds a successor is asked for.
    fn refuse(&mut self, call: u64) -> u64 {
        let refusal = Refusal {
            call: Some(call),
            call_was_accepted: self.accepted.contains(&call),
            any_was_accepted: !self.accepted.is_empty(),
            age: self.born.age_at(self.now),
        };
        self.doubts.refused_at(self.now, refusal).as_secs()
    }

    fn invalidate(&mut self) -> u64 {
        let refusal = Refusal {
            call: None,
            call_was_accepted: false,
            any_was_accepted: false,
            age: self.born.age_at(self.now),
        };
        self.doubts.refused_at(self.now, refusal).as_secs()
    }

    /// Waits that long, and gets a successor.
    fn succeed(&mut self, after: u64) {
        self.wait(secs(after));
        self.doubts.ask_at(self.now);
        self.doubts.succeed();
        self.born = self.now;
        self.accepted.clear();
    }
}

#[test]
fn constant_refusals_are_answered_at_a_growing_distance() {
    let mut story = Story::new();
    let mut waits = Vec::new();
    for _ in 0..7 {
        let wait = story.refuse(1);
        waits.push(wait);
        story.succeed(wait);
    }
    assert_eq!(waits, [0, 60, 120, 240, 300, 300, 300]);
}

#[test]
fn a_token_that_was_accepted_is_replaced_at_once_however_often() {
    let mut story = Story::new();
    for _ in 0..20 {
        story.accept(1);
        story.wait(secs(300));
        assert_eq!(story.refuse(1), 0);
        story.succeed(0);
    }
}

#[test]
fn a_place_that_refuses_all_tokens_waits_and_no_other_does() {
    let mut story = Story::new();
    for distance in [0, 60, 120, 240] {
        story.accept(1);
        assert_eq!(story.refuse(2), distance);
        story.wait(secs(15));
        // A death is found out beside it, and mended at once.
        assert_eq!(story.refuse(1), 0);
        story.succeed(0);
        story.accept(1);
        let wait = story.refuse(2);
        story.succeed(wait);
    }
}

#[test]
fn a_place_that_is_helped_in_the_end_is_forgotten() {
    let mut story = Story::new();
    for _ in 0..3 {
        let wait = story.refuse(2);
        story.succeed(wait);
    }
    assert!(story.doubts.is_hopeless());
    story.accept(2);
    assert!(!story.doubts.is_hopeless());
    story.wait(secs(60));
    assert_eq!(story.refuse(2), 0);
}

#[test]
fn many_places_that_refuse_all_tokens_share_the_distance() {
    let mut story = Story::new();
    let mut asked = 0;
    let start = story.now;
    for call in 2.. {
        story.accept(1);
        story.wait(secs(1));
        let wait = story.refuse(call);
        story.succeed(wait);
        asked += 1;
        if start.age_at(story.now) > secs(3_600) {
            break;
        }
    }
    assert!(asked <= 18, "{asked}");
}

#[test]
fn by_hand_a_token_that_served_a_minute_is_replaced_at_once() {
    let mut story = Story::new();
    for _ in 0..5 {
        story.wait(secs(90));
        assert_eq!(story.invalidate(), 0);
        story.succeed(0);
    }
    let mut waits = Vec::new();
    for _ in 0..4 {
        let wait = story.invalidate();
        waits.push(wait);
        story.succeed(wait);
    }
    assert_eq!(waits, [60, 120, 240, 300]);
}

#[test]
fn an_hour_of_calm_forgets() {
    let mut story = Story::new();
    for _ in 0..4 {
        let wait = story.refuse(1);
        story.succeed(wait);
    }
    story.wait(secs(3_600));
    assert_eq!(story.refuse(1), 0);
}

#[test]
fn a_place_that_says_yes_and_no_grows_the_distance_and_delays_no_death() {
    let mut story = Story::new();
    let mut waits = Vec::new();
    for _ in 0..6 {
        story.accept(2);
        story.accept(1);
        story.wait(secs(1));
        let wait = story.refuse(2);
        story.accept(2);
        assert_eq!(story.refuse(2), wait);
        waits.push(wait);
        story.succeed(wait);
    }
    assert_eq!(waits, [0, 59, 119, 239, 299, 299]);
    story.accept(1);
    story.wait(secs(15));
    assert_eq!(story.refuse(1), 0, "a death beside it");
}
