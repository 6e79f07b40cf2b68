//! The ladder, whatever comes.

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
    prop_oneof![Just(Rung::Proven), Just(Rung::Serial)]
}

proptest! {
    /// One request is granted before each event, unless there is silence. Each refusal means a
    /// second of silence; three that are news lead down if nothing else comes between, and what was
    /// granted before the last step down is no news; and up it goes by one rung, when no step led
    /// down for ten minutes, and for a minute at least after each other one.
    #[test]
    fn three_that_are_news_lead_down_and_silence_lasts_a_second(
        start in any_rung(),
        events in prop::collection::vec(event(), 1..200),
    ) {
        let mut ladder = Ladder::new(start);
        let mut now = Tick::ZERO;
        let mut stepped = Tick::ZERO;
        let mut is_first = true;
        let mut refused = Tick::ZERO;
        // When each request was granted, and after how many steps down.
        let mut granted = vec![(Tick::ZERO, 0)];
        let mut steps_down = 0;
        let (mut news, mut in_a_row) = (0, 0);
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
                    if steps == steps_down {
                        news += 1;
                        in_a_row += 1;
                    }
                    prop_assert!(led.is_none() || (steps == steps_down && news >= 3));
                    prop_assert!(led.is_some() || in_a_row < 3);
                    prop_assert_eq!(led.unwrap_or(before), ladder.rung());
                    if led.is_some() {
                        (news, in_a_row) = (0, 0);
                        steps_down += 1;
                        (stepped, is_first) = (now, true);
                        prop_assert_eq!(ladder.rung(), before.down());
                    }
                    refused = now;
                    prop_assert!(ladder.silent_until() >= now.plus(SECOND));
                }
                Event::Accepted => {
                    in_a_row = 0;
                    if let Some(rung) = ladder.accept(now) {
                        prop_assert_eq!(before.up(), Some(rung));
                        let least = if is_first { 10 * MINUTES } else { MINUTES };
                        prop_assert!(now.since(stepped) >= least);
                        (stepped, is_first) = (now, false);
                    } else {
                        prop_assert_eq!(ladder.rung(), before);
                    }
                }
            }
            prop_assert!(ladder.silent_until() <= refused.plus(2 * SECOND));
        }
    }
}
