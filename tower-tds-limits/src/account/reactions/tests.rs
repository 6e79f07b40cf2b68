use proptest::{collection::vec, prelude::*};

use super::*;

const SECOND: u64 = 1_000_000_000;

const MINUTE: u64 = 60 * SECOND;

impl Reactions {
    /// State after this many lowerings of the rate.
    pub(crate) fn lowered_by(times: u32) -> Self {
        let rate = Lowered {
            times,
            ..Lowered::default()
        };
        Self {
            rate,
            ..Self::default()
        }
    }
}

fn at(seconds: u64) -> Tick {
    Tick::ZERO.plus(seconds * SECOND)
}

fn refuse_rate(reactions: &mut Reactions, granted: u64, now: u64) -> bool {
    reactions.lower_rate(at(now), at(granted))
}

fn refuse_sockets(reactions: &mut Reactions, granted: u64, now: u64) -> bool {
    reactions.lower_sockets(at(now), at(granted), false)
}

fn fifty() -> Quota {
    Quota::per_second(NonZeroU32::new(50).expect("50 is not zero"))
}

#[test]
fn a_423_begins_a_silence_and_each_volley_lowers_the_rate_once_down_to_a_sixth() {
    let mut reactions = Reactions::default();
    let mut left = Vec::new();
    for second in 0..12 {
        let (granted, refused) = (10 * second + 4, 10 * second + 5);
        assert!(refuse_rate(&mut reactions, granted, refused));
        // This one was granted before the rate was lowered.
        assert!(!refuse_rate(&mut reactions, refused, refused + 1));
        let silence = at(10 * second + 6).plus(SILENCE);
        assert_eq!(reactions.silent_until, silence);
        let (quota, pace) = reactions.lowered(fifty());
        assert_eq!(pace.map(|pace| pace.places), Some(5));
        left.push(quota.requests().get());
    }
    assert_eq!(left, [50, 40, 32, 25, 20, 16, 12, 9, 8, 8, 8, 8]);
    let last = at(116).plus(10 * MINUTE);
    assert!(!reactions.restore_rate(last.minus(1)));
    assert!(reactions.restore_rate(last));
    assert_eq!(reactions.lowered(fifty()), (fifty(), None));
}

#[test]
fn further_416s_lower_the_sockets_down_to_a_sixth() {
    let mut reactions = Reactions::default();
    for second in 1..40 {
        refuse_sockets(&mut reactions, 2 * second - 1, 2 * second);
        // This 416 answers a request that was sent before.
        refuse_sockets(&mut reactions, 2 * second, 2 * second + 1);
    }
    assert_eq!(
        reactions.most_sockets(60),
        Some((10, at(79).plus(10 * MINUTE)))
    );
    assert_eq!(reactions.most_sockets(3).map(|(most, _)| most), Some(1));
}

#[test]
fn a_416_while_more_sockets_are_open_than_the_limit_allows_lowers_nothing() {
    let mut reactions = Reactions::default();
    refuse_sockets(&mut reactions, 0, 1);
    assert!(!reactions.lower_sockets(at(4), at(3), true));
    assert_eq!(reactions.silent_until, at(4).plus(SILENCE));
    assert!(reactions.closes_socket(at(4).plus(CLOSING - 1)));
    let ends = at(4).plus(10 * MINUTE);
    assert_eq!(reactions.most_sockets(60), Some((50, ends)));
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Accepted),
        Just(Outcome::RateExceeded),
        Just(Outcome::ConnectionsExceeded),
    ]
}

proptest! {
    /// Nothing stays closed: requests for at most a second, sockets for ten minutes, one socket always.
    #[test]
    fn everything_opens_again_after_random_refusals(
        events in vec((0_u64..20_000, outcome(), 0_u64..3_000), 1..200),
        most in 1_u32..10,
    ) {
        let mut reactions = Reactions::default();
        let mut now = at(1);
        for (after, outcome, took) in events {
            now = now.plus(after * 1_000_000);
            let granted = now.minus(took * 1_000_000);
            match outcome {
                Outcome::RateExceeded => _ = reactions.lower_rate(now, granted),
                Outcome::ConnectionsExceeded => _ = reactions.lower_sockets(now, granted, false),
                _ => {}
            }
            let closed = reactions.silent_until;
            prop_assert!(closed <= now.plus(SILENCE));
            let lowered = reactions.most_sockets(most).map_or(most, |(most, _)| most);
            prop_assert!((1..=most).contains(&lowered));
            if outcome == Outcome::RateExceeded {
                prop_assert!(closed >= now.plus(SILENCE));
            }
        }
        let later = now.plus(10 * MINUTE);
        prop_assert!(reactions.silent_until <= later);
        prop_assert!(reactions.most_sockets(most).is_none_or(|(_, until)| until <= later));
        prop_assert!(reactions.rate.times == 0 || reactions.restore_rate(later));
        prop_assert!(!reactions.closes_socket(later));
    }
}
