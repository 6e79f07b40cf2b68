//! The ladder under random events.

use proptest::prelude::*;

use super::*;

/// An event and the milliseconds before it.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// The request that was granted so many grants ago, in such a crowd, is refused.
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
    /// One request is granted before each event, unless there is silence. Each refusal means a
    /// second of silence. Only news leads to another rung: three in a row lead down or back, two
    /// lead back at least. Time leads up by one rung, after ten minutes on the first and one minute
    /// on each other.
    #[test]
    fn random_events_keep_the_rules_of_the_ladder(
        start in any_rung(),
        events in prop::collection::vec(event(), 1..200),
    ) {
        let mut ladder = Ladder::on(start);
        let mut now = Tick::ZERO;
        let (mut stepped, mut is_first) = (Tick::ZERO, true);
        let mut refused = Tick::ZERO;
        // When each request was granted, and after how many steps.
        let mut granted = vec![(Tick::ZERO, 0)];
        let (mut steps, mut news) = (0, 0);
        for (after, event) in events {
            now = now.plus(after * 1_000_000);
            if ladder.silent_until() <= now {
                granted.push((now, steps));
            }
            let before = ladder.step;
            match event {
                Event::Refused(ago, bunched) => {
                    let number = granted.len().saturating_sub(ago + 1);
                    let (at, of) = granted[number];
                    let crowd = Crowd { bunched, live: 2 * bunched };
                    let led = ladder.refuse(now, at, crowd, fifty());
                    news += u32::from(of == steps);
                    prop_assert!(!led || (of == steps && news >= 2));
                    prop_assert_eq!(led, ladder.step != before);
                    if led {
                        news = 0;
                        steps += 1;
                        (stepped, is_first) = (now, true);
                    }
                    refused = now;
                    prop_assert!(ladder.silent_until() >= now.plus(SECOND));
                }
                Event::Accepted => {
                    if ladder.accept(now) {
                        prop_assert_eq!(before.up(), Some(ladder.step));
                        let least = if is_first { 10 * MINUTES } else { MINUTES };
                        prop_assert!(now.since(stepped) >= least);
                        (stepped, is_first) = (now, false);
                    } else {
                        prop_assert_eq!(ladder.step, before);
                    }
                }
            }
            prop_assert!(ladder.silent_until() <= refused.plus(2 * SECOND));
        }
    }
}
