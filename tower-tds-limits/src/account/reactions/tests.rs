use proptest::{collection::vec, prelude::*};

use super::*;

const ONE: Key = Key(0);

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

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The length of the pause that a 429 begins.
fn refused(reactions: &mut Reactions, now: Tick, hint: Option<Duration>) -> Option<Duration> {
    match reactions.on(Outcome::QuotaExceeded(hint), now, now, ONE) {
        Begins::Pause(wait) => Some(wait),
        Begins::Nothing => None,
        other => panic!("{other:?}"),
    }
}

fn accepted(reactions: &mut Reactions, now: Tick) {
    let begins = reactions.on(Outcome::Accepted, now, now, ONE);
    assert_eq!(begins, Begins::Nothing);
}

fn refuse(reactions: &mut Reactions, outcome: Outcome, granted: u64, now: u64) -> Begins {
    reactions.on(outcome, at(now), at(granted), ONE)
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

fn fifty() -> Quota {
    Quota::per_second(NonZeroU32::new(50).expect("50 is not zero"))
}

#[test]
fn a_423_begins_a_silence_and_each_volley_lowers_the_rate_once_down_to_a_sixth() {
    let mut reactions = Reactions::default();
    let mut left = Vec::new();
    for second in 0..12 {
        let now = at(10 * second + 5);
        let begins = refuse(
            &mut reactions,
            Outcome::RateExceeded,
            10 * second + 4,
            10 * second + 5,
        );
        assert_eq!(begins, Begins::LowerRate);
        // This one was granted before the rate was lowered.
        let late = refuse(
            &mut reactions,
            Outcome::RateExceeded,
            10 * second + 5,
            10 * second + 6,
        );
        assert_eq!(late, Begins::Nothing);
        let silence = (at(10 * second + 6).plus(SILENCE), WaitCause::Silence);
        assert_eq!(until(&reactions, now), silence);
        assert!(reactions.connects_at <= now, "connects go on");
        let (quota, pace) = reactions.lowered(fifty());
        assert_eq!(pace.map(|pace| pace.at_once), Some(5));
        left.push(quota.requests().get());
    }
    assert_eq!(left, [50, 40, 32, 25, 20, 16, 12, 9, 8, 8, 8, 8]);
    let last = at(116).plus(10 * MINUTE);
    assert!(!reactions.restore_rate(last.minus(1)));
    assert!(reactions.restore_rate(last));
    assert_eq!(reactions.lowered(fifty()), (fifty(), None));
}

#[test]
fn a_416_lowers_sockets_and_requests_in_flight_for_ten_minutes() {
    let mut reactions = Reactions::default();
    let begins = refuse(&mut reactions, Outcome::ConnectionsExceeded, 0, 1);
    assert_eq!(begins, Begins::FewerSockets);
    let silence = at(1).plus(SILENCE);
    assert_eq!(until(&reactions, at(1)), (silence, WaitCause::Silence));
    assert_eq!(reactions.connects_at, silence);
    assert_eq!(
        reactions.most_sockets(60),
        Some((50, at(1).plus(10 * MINUTE)))
    );
    assert!(reactions.closes_socket(at(1).plus(CLOSING - 1)));
    assert!(!reactions.closes_socket(at(1).plus(CLOSING)));
}

#[test]
fn further_416s_lower_the_sockets_down_to_a_sixth() {
    let mut reactions = Reactions::default();
    for second in 1..40 {
        refuse(
            &mut reactions,
            Outcome::ConnectionsExceeded,
            2 * second - 1,
            2 * second,
        );
        // This 416 answers a request that was sent before.
        refuse(
            &mut reactions,
            Outcome::ConnectionsExceeded,
            2 * second,
            2 * second + 1,
        );
    }
    assert_eq!(
        reactions.most_sockets(60),
        Some((10, at(79).plus(10 * MINUTE)))
    );
    assert_eq!(reactions.most_sockets(3).map(|(most, _)| most), Some(1));
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
    refuse(&mut reactions, Outcome::ConnectionsExceeded, 4, 5);
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
        events in vec((0_u64..20_000, outcome(), 0_u64..3_000), 1..200),
        most in 1_u32..10,
    ) {
        let mut reactions = Reactions::default();
        let mut now = at(1);
        for (after, outcome, took) in events {
            now = now.plus(after * 1_000_000);
            reactions.on(outcome, now, now.minus(took * 1_000_000), ONE);
            let closed = sends_at(&reactions, now);
            prop_assert!(closed <= now.plus(MINUTE));
            let lowered = reactions.most_sockets(most).map_or(most, |(most, _)| most);
            prop_assert!((1..=most).contains(&lowered));
            prop_assert!(reactions.connects_at <= now.plus(SILENCE));
            if outcome == Outcome::RateExceeded {
                prop_assert!(closed >= now.plus(SILENCE));
            }
        }
        let later = now.plus(10 * MINUTE);
        prop_assert!(sends_at(&reactions, later) <= later);
        prop_assert!(reactions.most_sockets(most).is_none_or(|(_, until)| until <= later));
        prop_assert!(reactions.rate.times == 0 || reactions.restore_rate(later));
        prop_assert!(!reactions.closes_socket(later));
    }
}
