use proptest::{collection::vec, prelude::*};

use super::*;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn long_retry_after_is_kept_and_calls_resume_each_minute() {
    let (pause, start) = (Pause::default(), Instant::now());
    let until = || {
        pause
            .last()
            .map(|last| (last.until() - start, last.ends() - start))
    };
    assert_eq!(pause.begin(Some(secs(86_400)), start), Some(secs(86_400)));
    assert_eq!(until(), Some((secs(60), secs(86_400))));
    // A later hint takes its place.
    pause.begin(Some(secs(30)), start + secs(120));
    assert_eq!(until(), Some((secs(150), secs(150))));
    pause.begin(Some(Duration::MAX), start + secs(150));
    assert_eq!(until(), Some((secs(210), secs(150) + YEAR)));
}

#[test]
fn refusals_within_a_pause_can_only_lengthen_it() {
    let (pause, start) = (Pause::default(), Instant::now());
    pause.begin(Some(secs(5)), start);
    for (hint, until) in [(None, 5), (Some(secs(2)), 5), (Some(secs(9)), 10)] {
        assert_eq!(pause.begin(hint, start + secs(1)), None);
        assert_eq!(pause.last().map(Paused::until), Some(start + secs(until)));
    }
}

#[test]
fn pauses_without_retry_after_double_up_to_a_minute() {
    let (pause, mut now) = (Pause::default(), Instant::now());
    for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(pause.begin(None, now), Some(secs(wait)));
        // A second refusal does not double the next pause once more.
        assert_eq!(pause.begin(None, now), None);
        now += secs(wait);
    }
    pause.end(now);
    assert_eq!(pause.begin(None, now), Some(secs(1)));
}

proptest! {
    /// No hint stops a stack for longer than a minute.
    #[test]
    fn any_hints_pause_for_one_to_sixty_seconds(
        hints in vec((prop::option::of(any::<u64>()), 0_u64..100_000), 1..50),
    ) {
        let (pause, mut now) = (Pause::default(), Instant::now());
        for (hint, after) in hints {
            now += Duration::from_millis(after);
            let before = pause.at(now);
            pause.begin(hint.map(Duration::from_millis), now);
            let until = pause.at(now).map(Paused::until).expect("a pause");
            prop_assert!(until <= now + LONGEST);
            prop_assert!(before.is_some() || until >= now + SHORTEST);
        }
    }
}
