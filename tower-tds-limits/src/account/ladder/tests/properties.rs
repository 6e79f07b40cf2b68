//! The ladder under random events.

use proptest::prelude::*;

use super::*;

/// An event and the milliseconds before it.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// Refuses the request that was granted this many grants ago, in this crowd.
    Refused(usize, u64),
    Accepted,
}

fn event() -> impl Strategy<Value = (u64, Event)> {
    let after = prop_oneof![4 => 0_u64..2_000, 1 => 0_u64..2_000_000];
    let event = prop_oneof![
        1 => (0_usize..6, 0_u64..20).prop_map(|(ago, bunched)| Event::Refused(ago, bunched)),
        2 => Just(Event::Accepted),
    ];
    (after, event)
}

fn any_rung() -> impl Strategy<Value = Rung> {
    prop_oneof![Just(Rung::Proven), Just(Rung::Serial)]
}

proptest! {
    /// One request is granted before each event. Only refusals of requests that were granted since
    /// the last move lead to another rung, three at least, and that rung is stricter. Only time
    /// leads back, ten minutes at least, and always to the highest rung.
    #[test]
    fn random_events_keep_the_rules_of_the_ladder(
        start in any_rung(),
        events in prop::collection::vec(event(), 1..200),
    ) {
        let mut ladder = Ladder::on(start);
        let mut now = Tick::ZERO;
        let mut moved = Tick::ZERO;
        // When each request was granted, and after how many moves.
        let mut granted = vec![(Tick::ZERO, 0)];
        let (mut moves, mut news) = (0, 0);
        for (after, event) in events {
            now = now.plus(after * 1_000_000);
            granted.push((now, moves));
            let before = ladder.step;
            match event {
                Event::Refused(ago, bunched) => {
                    let number = granted.len().saturating_sub(ago + 1);
                    let (at, of) = granted[number];
                    let crowd = Crowd { bunched, live: 2 * bunched };
                    let led = ladder.refuse(now, at, crowd, fifty());
                    news += u32::from(of == moves);
                    prop_assert!(!led || (of == moves && news >= 3));
                    prop_assert_eq!(led, ladder.step != before);
                    if led {
                        prop_assert!(ladder.step.slowed > before.slowed || ladder.step.burst != before.burst);
                        prop_assert!(ladder.step.slowed >= before.slowed);
                        (news, moved) = (0, now);
                        moves += 1;
                    }
                }
                Event::Accepted => {
                    if ladder.accept(now) {
                        prop_assert_eq!(ladder.rung(), Rung::Proven);
                        prop_assert!(now.since(moved) >= 10 * MINUTES);
                        (news, moved) = (0, now);
                        moves += 1;
                    } else {
                        prop_assert_eq!(ladder.step, before);
                    }
                }
            }
        }
    }
}
