mod properties;

use super::*;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn a_hint_is_honoured_and_then_one_tries() {
    let now = Instant::now();
    let mut pause = Pause::new();
    assert_eq!(pause.refuse(now, Some(secs(7)), false), Some(secs(7)));
    assert_eq!(pause.opens(Line::Back, now), Opens::At(now + secs(7)));
    let over = now + secs(7);
    assert_eq!(pause.opens(Line::Back, over), Opens::Now);
    assert_eq!(pause.admit(Line::Back, over), Passage::Tries);
    assert_eq!(
        pause.opens(Line::Back, over + secs(1)),
        Opens::At(over + secs(30)),
        "another may try if nothing is heard of this one"
    );
    pause.end();
    assert_eq!(pause.opens(Line::Back, over), Opens::Now);
    assert_eq!(pause.admit(Line::Back, over), Passage::Free);
}

#[test]
fn a_hint_of_hours_is_remembered_and_tried_every_minute() {
    let now = Instant::now();
    let mut pause = Pause::new();
    let wait = pause.refuse(now, Some(secs(86_400)), false);
    assert_eq!(wait, Some(secs(60)));
    assert_eq!(pause.told(), Some(now + secs(86_400)));
    pause.end();
    assert_eq!(pause.told(), None);
}

#[test]
fn those_in_flight_are_no_news_and_can_prolong_it() {
    let now = Instant::now();
    let mut pause = Pause::new();
    pause.refuse(now, Some(secs(5)), false);
    assert_eq!(pause.refuse(now + secs(1), None, false), None);
    assert_eq!(pause.until(), Some(now + secs(5)));
    assert_eq!(pause.refuse(now + secs(1), Some(secs(9)), false), None);
    assert_eq!(pause.until(), Some(now + secs(10)));
}

#[test]
fn without_hints_each_failed_try_doubles_the_pause_up_to_a_minute() {
    let mut now = Instant::now();
    let mut pause = Pause::new();
    let mut waits = vec![pause.refuse(now, None, false)];
    for _ in 0..7 {
        now = pause.until().expect("it pauses");
        assert_eq!(pause.admit(Line::Back, now), Passage::Tries);
        waits.push(pause.refuse(now, None, true));
    }
    let expected = [1, 2, 4, 8, 16, 32, 60, 60];
    assert_eq!(waits, expected.map(|wait| Some(secs(wait))));
    // An accepted one ends the series.
    assert_eq!(
        pause.admit(Line::Back, pause.until().expect("it pauses")),
        Passage::Tries
    );
    pause.end();
    assert_eq!(pause.refuse(now, None, false), Some(secs(1)));
}

#[test]
fn a_try_without_an_answer_lets_another_try() {
    let now = Instant::now();
    let mut pause = Pause::new();
    pause.refuse(now, None, false);
    let over = now + secs(1);
    assert_eq!(pause.admit(Line::Back, over), Passage::Tries);
    pause.untried();
    assert_eq!(pause.opens(Line::Back, over), Opens::Now);
    assert_eq!(pause.admit(Line::Back, over), Passage::Tries);
}

#[test]
fn a_late_refusal_does_not_disturb_the_one_that_tries() {
    let now = Instant::now();
    let mut pause = Pause::new();
    pause.refuse(now, None, false);
    assert_eq!(pause.admit(Line::Back, now + secs(1)), Passage::Tries);
    assert_eq!(pause.refuse(now + secs(1), None, false), None);
    assert_eq!(
        pause.opens(Line::Back, now + secs(9)),
        Opens::At(now + secs(31))
    );
}

#[test]
fn only_the_try_is_told_of_a_shorter_pause() {
    let now = Instant::now();
    let mut pause = Pause::new();
    pause.refuse(now, Some(secs(86_400)), false);
    pause.refuse(now, Some(secs(7_200)), false);
    assert_eq!(pause.told(), Some(now + secs(86_400)));
    let over = now + secs(60);
    assert_eq!(pause.admit(Line::Back, over), Passage::Tries);
    pause.refuse(over, None, true);
    assert_eq!(
        pause.told(),
        Some(now + secs(86_400)),
        "no hint is no news of it"
    );
    let over = over + secs(60);
    assert_eq!(pause.admit(Line::Back, over), Passage::Tries);
    pause.refuse(over, Some(secs(7_200)), true);
    assert_eq!(pause.told(), Some(over + secs(7_200)));
    let over = over + secs(60);
    assert_eq!(pause.admit(Line::Back, over), Passage::Tries);
    assert_eq!(pause.refuse(over, Some(secs(30)), true), Some(secs(30)));
    assert_eq!(pause.told(), None, "half a minute is waited for");
}

#[test]
fn a_try_that_is_never_answered_is_given_up() {
    let now = Instant::now();
    let mut pause = Pause::new();
    pause.refuse(now, Some(secs(1)), false);
    let mut over = now + secs(1);
    for _ in 0..3 {
        assert_eq!(pause.admit(Line::Back, over), Passage::Tries);
        assert_eq!(pause.opens(Line::Back, over), Opens::At(over + secs(30)));
        over += secs(30);
        assert_eq!(pause.opens(Line::Back, over), Opens::Now);
    }
}
