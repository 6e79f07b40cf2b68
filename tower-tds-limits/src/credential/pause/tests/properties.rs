//! The pause, whatever comes.

use proptest::prelude::*;

use super::*;

/// An event and the milliseconds before it.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// A 429 to an earlier request, with a hint in seconds.
    Refused(Option<u64>),
    /// A call tries to pass.
    Asked,
    /// The one that tried is refused, accepted, or gets no answer.
    TryRefused(Option<u64>),
    TryAccepted,
    TryLost,
}

fn event() -> impl Strategy<Value = (u64, Event)> {
    let hint = || prop::option::of(prop_oneof![0_u64..3, 0_u64..200]);
    let event = prop_oneof![
        2 => hint().prop_map(Event::Refused),
        6 => Just(Event::Asked),
        2 => hint().prop_map(Event::TryRefused),
        1 => Just(Event::TryAccepted),
        1 => Just(Event::TryLost),
    ];
    (prop_oneof![2 => 0_u64..1_500, 1 => 0_u64..20_000], event)
}

fn secs_of(hint: Option<u64>) -> Option<Duration> {
    hint.map(secs)
}

proptest! {
    /// After a 429 no call passes for a second, or until the hint, up to a minute. Then one call
    /// passes, and no other until its outcome is known.
    #[test]
    fn nobody_passes_before_its_end_and_then_one_at_a_time(
        events in prop::collection::vec(event(), 1..200),
    ) {
        let mut pause = Pause::new();
        let mut now = Instant::now();
        let mut closed_until = None;
        let mut trying = None;
        let mut tried_at = now;
        for (after, event) in events {
            now += Duration::from_millis(after);
            let closes = |hint: Option<u64>, least: u64| {
                let hint = hint.unwrap_or(0).min(60);
                Some(now + secs(hint.max(least)))
            };
            match event {
                Event::Refused(hint) => {
                    let news = closed_until.is_none();
                    let begun = pause.refuse(now, secs_of(hint), None);
                    prop_assert_eq!(begun.is_some(), news);
                    if trying.is_none() {
                        closed_until = closed_until.max(closes(hint, u64::from(news)));
                    }
                }
                Event::Asked if pause.opens(Line::Back, now) == Opens::Now => {
                    let passage = pause.admit(Line::Back, now);
                    if passage == Passage::Told {
                        continue;
                    }
                    let given_up = trying.is_some() && tried_at + LONGEST_TRY <= now;
                    prop_assert!(trying.is_none() || given_up);
                    prop_assert!(closed_until.is_none_or(|until| until <= now));
                    trying = match passage {
                        Passage::Tries(number) => Some(number),
                        Passage::Free | Passage::Told => None,
                    };
                    tried_at = now;
                    prop_assert_eq!(trying.is_some(), closed_until.is_some());
                }
                Event::Asked => prop_assert!(closed_until.is_some()),
                Event::TryRefused(hint) if trying.is_some() => {
                    let tried = trying.take();
                    prop_assert!(pause.refuse(now, secs_of(hint), tried).is_some());
                    closed_until = closes(hint, 1);
                }
                Event::TryAccepted => {
                    if let Some(tried) = trying.take() {
                        closed_until = None;
                        prop_assert!(pause.end(tried));
                    }
                }
                Event::TryLost => {
                    if let Some(tried) = trying.take() {
                        pause.untried(tried);
                    }
                }
                Event::TryRefused(_) => {}
            }
        }
    }
}
