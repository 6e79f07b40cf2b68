use proptest::{collection::vec, prelude::*};

use super::*;

const ONE: Key = Key(0);

const SECOND: u64 = 1_000_000_000;

const MINUTE: u64 = 60 * SECOND;

/// State of the sockets in which all are open.
const ALL: (u32, u32) = (60, 60);

fn at(seconds: u64) -> Tick {
    Tick::ZERO.plus(seconds * SECOND)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The length of the pause that a 429 begins.
fn refused(reactions: &mut Reactions, now: Tick, hint: Option<Duration>) -> Option<Duration> {
    match reactions.on(Outcome::QuotaExceeded(hint), now, ONE, ALL) {
        Begins::Pause(wait) => Some(wait),
        Begins::Nothing => None,
        other => panic!("{other:?}"),
    }
}

fn accepted(reactions: &mut Reactions, now: Tick) {
    let begins = reactions.on(Outcome::Accepted, now, ONE, ALL);
    assert_eq!(begins, Begins::Nothing);
}

fn many_connections(reactions: &mut Reactions, now: Tick, sockets: (u32, u32)) -> bool {
    reactions.on(Outcome::ConnectionsExceeded, now, ONE, sockets) == Begins::FewerSockets
}

fn until(reactions: &Reactions, now: Tick) -> (Tick, WaitCause) {
    reactions.closed_until(now)
}

/// When requests of the first credential may be sent again.
fn sends_at(reactions: &Reactions, now: Tick) -> Tick {
    let pause = reactions.pause_of(ONE).map(|pause| pause.until);
    pause.unwrap_or_default().max(until(reactions, now).0)
}

/// The announced end of the pause.
fn announced(reactions: &Reactions) -> Option<Tick> {
    reactions.pause_of(ONE).map(|pause| pause.announced)
}

#[test]
fn each_423_begins_a_silence_of_a_second_for_all() {
    let mut reactions = Reactions::default();
    for seconds in [5, 6, 11] {
        let now = at(seconds);
        let begins = reactions.on(Outcome::RateExceeded, now, ONE, ALL);
        assert_eq!(begins, Begins::Silence);
        let silence = (now.plus(SILENCE), WaitCause::Silence);
        assert_eq!(until(&reactions, now), silence);
        assert_eq!(reactions.silence(now), Some(silence.0));
        assert_eq!(reactions.silence(silence.0), None);
        assert!(reactions.connects_at <= now, "connects go on");
    }
}

#[test]
fn a_416_lowers_sockets_and_requests_in_flight_for_ten_minutes() {
    let mut reactions = Reactions::default();
    assert!(many_connections(&mut reactions, at(1), ALL));
    let silence = at(1).plus(SILENCE);
    assert_eq!(until(&reactions, at(1)), (silence, WaitCause::Silence));
    assert_eq!(reactions.connects_at, silence);
    let restored = at(1).plus(10 * MINUTE);
    assert_eq!(reactions.lowered, Some((50, restored)));
    assert_eq!(reactions.most_in_flight(restored.minus(1)), 49);
    assert_eq!(reactions.most_in_flight(restored), u32::MAX);
    assert!(reactions.closes_socket(at(1).plus(CLOSING - 1)));
    assert!(!reactions.closes_socket(at(1).plus(CLOSING)));
}

#[test]
fn each_further_416_lowers_the_sockets_again_down_to_one() {
    let mut reactions = Reactions::default();
    let most = |reactions: &Reactions| reactions.lowered.map(|(most, _)| most);
    assert!(many_connections(&mut reactions, at(1), (2, 3)));
    // This 429 answers a request that was sent before the pause.
    assert!(!many_connections(
        &mut reactions,
        at(1).plus(SECOND / 2),
        (2, 3)
    ));
    assert_eq!(most(&reactions), Some(2));
    for seconds in [500, 502] {
        assert!(many_connections(&mut reactions, at(seconds), (1, 3)));
        assert_eq!(most(&reactions), Some(1));
    }
    assert_eq!(reactions.most_in_flight(at(700)), 1);
}

#[test]
fn repeated_416_with_sockets_over_the_limit_lowers_it_once() {
    let mut reactions = Reactions::default();
    for second in 0..60 {
        assert!(many_connections(&mut reactions, at(2 * second), (59, 60)));
    }
    assert_eq!(reactions.lowered, Some((50, at(10 * 60))));
}

#[test]
fn pause_follows_retry_after_and_ends_with_an_accepted_response() {
    let mut reactions = Reactions::default();
    assert_eq!(refused(&mut reactions, at(1), Some(secs(7))), Some(secs(7)));
    accepted(&mut reactions, at(7));
    assert_eq!(sends_at(&reactions, at(7)), at(8));
    let another = reactions.key();
    assert!(another != ONE && reactions.pause_of(another).is_none());
    assert_eq!(until(&reactions, at(7)).0, Tick::ZERO, "others go on");
    assert!(
        announced(&reactions).is_some(),
        "no response was accepted yet"
    );
    accepted(&mut reactions, at(8));
    assert_eq!(announced(&reactions), None);
}

#[test]
fn end_of_a_share_closes_everything() {
    let mut reactions = Reactions::default();
    reactions.share_until(at(9), false, at(1));
    assert_eq!(until(&reactions, at(8)).0, Tick::ZERO);
    assert_eq!(until(&reactions, at(9)), (Tick::NEVER, WaitCause::Share));
    reactions.store_fault = Some("unreachable");
    let fault = WaitCause::Store("unreachable");
    assert_eq!(until(&reactions, at(9)), (Tick::NEVER, fault));
}

#[test]
fn requests_close_their_sockets_while_a_share_has_too_many() {
    let mut reactions = Reactions::default();
    reactions.share_until(at(9), true, at(1));
    assert!(reactions.closes_socket(at(8)));
    assert!(many_connections(&mut reactions, at(5), ALL));
    reactions.share_until(at(12), false, at(6));
    assert!(reactions.closes_socket(at(8).minus(1)), "after the 416");
    reactions.share_until(at(2_000), false, at(1_000));
    assert!(!reactions.closes_socket(at(1_000)));
}

#[test]
fn long_retry_after_is_kept_and_calls_resume_each_minute() {
    let mut reactions = Reactions::default();
    let wait = refused(&mut reactions, at(1), Some(secs(86_400)));
    assert_eq!(wait, Some(secs(86_400)));
    assert_eq!(sends_at(&reactions, at(1)), at(61));
    // Without a hint the announced end stays.
    refused(&mut reactions, at(61), None);
    assert_eq!(announced(&reactions), Some(at(86_401)));
    // A later hint takes its place.
    refused(&mut reactions, at(121), Some(secs(30)));
    assert_eq!(announced(&reactions), Some(at(151)));
}

#[test]
fn refusals_within_a_pause_can_only_lengthen_it() {
    let mut reactions = Reactions::default();
    refused(&mut reactions, at(1), Some(secs(5)));
    assert_eq!(refused(&mut reactions, at(2), None), None);
    assert_eq!(refused(&mut reactions, at(2), Some(secs(2))), None);
    assert_eq!(sends_at(&reactions, at(2)), at(6));
    assert_eq!(refused(&mut reactions, at(2), Some(secs(9))), None);
    assert_eq!(sends_at(&reactions, at(2)), at(11));
}

#[test]
fn pauses_without_retry_after_double_up_to_a_minute() {
    let mut now = at(1);
    let mut reactions = Reactions::default();
    for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(refused(&mut reactions, now, None), Some(secs(wait)));
        // A second refusal does not double the next pause once more.
        assert_eq!(refused(&mut reactions, now, None), None);
        now = now.plus(wait * SECOND);
    }
    accepted(&mut reactions, now);
    assert_eq!(refused(&mut reactions, now, None), Some(secs(1)));
}

#[test]
fn retry_after_is_capped_at_a_year() {
    let mut reactions = Reactions::default();
    refused(&mut reactions, at(0), Some(Duration::MAX));
    assert_eq!(announced(&reactions), Some(at(366 * 86_400)));
    assert_eq!(sends_at(&reactions, at(0)), at(60));
}

#[test]
fn forgotten_credential_leaves_no_pause() {
    let mut reactions = Reactions::default();
    for _ in 0..100 {
        refused(&mut reactions, at(1), None);
    }
    assert_eq!(reactions.pauses.len(), 1);
    reactions.forget(ONE);
    assert!(reactions.pauses.is_empty());
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Accepted),
        Just(Outcome::RateExceeded),
        Just(Outcome::ConnectionsExceeded),
        Just(Outcome::QuotaExceeded(None)),
        (0_u64..100_000).prop_map(|hint| Outcome::QuotaExceeded(Some(secs(hint)))),
    ]
}

proptest! {
    /// Nothing stays closed: requests for at most a minute, sockets for ten, one socket always.
    #[test]
    fn everything_opens_again_after_random_refusals(
        events in vec((0_u64..20_000, outcome(), 0_u32..12), 1..200),
        most in 1_u32..10,
    ) {
        let mut reactions = Reactions::default();
        let mut now = at(1);
        for (after, outcome, open) in events {
            now = now.plus(after * 1_000_000);
            reactions.on(outcome, now, ONE, (open, most));
            let closed = sends_at(&reactions, now);
            prop_assert!(closed <= now.plus(MINUTE));
            let lowered = reactions.lowered.map_or(most, |(most, _)| most);
            prop_assert!((1..=most).contains(&lowered));
            prop_assert!(reactions.connects_at <= now.plus(SILENCE));
            if outcome == Outcome::RateExceeded {
                prop_assert!(closed >= now.plus(SILENCE));
            }
        }
        let later = now.plus(10 * MINUTE);
        prop_assert!(sends_at(&reactions, later) <= later);
        prop_assert!(reactions.lowered.is_none_or(|(_, until)| until <= later));
        prop_assert!(!reactions.closes_socket(later));
    }
}
