//! The ladder, whatever comes.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]

use proptest::prelude::*;

use super::*;

/// What comes after so many milliseconds.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// The request that was granted so many grants ago is refused.
    Refused(usize),
    Accepted,
}

fn event() -> impl Strategy<Value = (u64, Event)> {
    let after = prop_oneof![4 => 0_u64..2_000, 1 => 0_u64..2_000_000];
    let event = prop_oneof![
        1 => (0_usize..6).prop_map(Event::Refused),
        2 => Just(Event::Accepted),
    ];
    (after, event)
}

fn any_rung() -> impl Strategy<Value = Rung> {
    prop_oneof![Just(Rung::Paced), Just(Rung::Proven), Just(Rung::Serial)]
}

proptest! {
    /// One request is granted before each event, unless there is silence. Each refusal means a second of silence; those
    /// granted before the last step down lead no further; and up it goes by one rung, when ten
    /// minutes were clean.
    #[test]
    fn an_episode_is_counted_once_and_silence_lasts_a_second(
        start in any_rung(),
        events in prop::collection::vec(event(), 1..200),
    ) {
        let mut ladder = Ladder::new(start);
        let mut now = Tick::ZERO;
        let mut stepped = Tick::ZERO;
        let mut refused = Tick::ZERO;
        // When each request was granted, and after how many steps down.
        let mut granted = vec![(Tick::ZERO, 0)];
        let mut steps_down = 0;
        for (after, event) in events {
            now = now.plus(after * 1_000_000);
            if ladder.silent_until() <= now {
                granted.push((now, steps_down));
            }
            let before = ladder.rung();
            match event {
                Event::Refused(ago) => {
                    let number = granted.len().saturating_sub(ago + 1);
                    let (at, steps) = granted[number];
                    let led = ladder.refuse(now, at);
                    prop_assert_eq!(led.is_some(), steps == steps_down);
                    prop_assert_eq!(led.unwrap_or(before), ladder.rung());
                    if led.is_some() {
                        steps_down += 1;
                        stepped = now;
                        prop_assert_eq!(ladder.rung(), before.down());
                    }
                    refused = now;
                    prop_assert!(ladder.silent_until() >= now.plus(SECOND));
                }
                Event::Accepted => {
                    if let Some(rung) = ladder.accept(now) {
                        prop_assert_eq!(before.up(), Some(rung));
                        prop_assert!(rung >= start.min(Rung::Proven));
                        prop_assert!(now.since(refused.max(stepped)) >= 10 * MINUTES);
                        stepped = now;
                    } else {
                        prop_assert_eq!(ladder.rung(), before);
                    }
                }
            }
            prop_assert!(ladder.silent_until() <= refused.plus(2 * SECOND));
        }
    }
}
