mod properties;

use super::*;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn tries(pause: &mut Pause, now: Instant) -> Try {
    match pause.admit(Line::Back, now) {
        Passage::Tries(number) => number,
        passage @ (Passage::Free | Passage::Told) => panic!("{passage:?}"),
    }
}

#[test]
fn a_hint_is_honoured_and_then_one_tries() {
    let now = Instant::now();
    let mut pause = Pause::new();
    assert_eq!(pause.refuse(now, Some(secs(7)), None), Some(secs(7)));
    assert_eq!(pause.opens(Line::Back, now), Opens::At(now + secs(7)));
    let over = now + secs(7);
    assert_eq!(pause.opens(Line::Back, over), Opens::Now);
    let tried = tries(&mut pause, over);
    assert_eq!(
        pause.opens(Line::Back, over + secs(1)),
        Opens::At(over + secs(30)),
        "another may try if nothing is heard of this one"
    );
    assert!(pause.end(tried));
    assert_eq!(pause.opens(Line::Back, over), Opens::Now);
    assert_eq!(pause.admit(Line::Back, over), Passage::Free);
}

#[test]
fn a_hint_of_hours_is_remembered_and_tried_every_minute() {
    let now = Instant::now();
    let mut pause = Pause::new();
    let wait = pause.refuse(now, Some(secs(86_400)), None);
    assert_eq!(wait, Some(secs(60)));
    assert_eq!(pause.told(), Some(now + secs(86_400)));
    let tried = tries(&mut pause, now + secs(86_400));
    assert!(pause.end(tried));
    assert_eq!(pause.told(), None);
}

#[test]
fn those_in_flight_are_no_news_and_can_prolong_it() {
    let now = Instant::now();
    let mut pause = Pause::new();
    pause.refuse(now, Some(secs(5)), None);
    assert_eq!(pause.refuse(now + secs(1), None, None), None);
    assert_eq!(pause.until(), Some(now + secs(5)));
    assert_eq!(pause.refuse(now + secs(1), Some(secs(9)), None), None);
    assert_eq!(pause.until(), Some(now + secs(10)));
}

#[test]
fn without_hints_each_failed_try_doubles_the_pause_up_to_a_minute() {
    let mut now = Instant::now();
    let mut pause = Pause::new();
    let mut waits = vec![pause.refuse(now, None, None)];
    for _ in 0..7 {
        now = pause.until().expect("it pauses");
        let tried = tries(&mut pause, now);
        waits.push(pause.refuse(now, None, Some(tried)));
    }
    let expected = [1, 2, 4, 8, 16, 32, 60, 60];
    assert_eq!(waits, expected.map(|wait| Some(secs(wait))));
    // An accepted one ends the series.
    let over = pause.until().expect("it pauses");
    let tried = tries(&mut pause, over);
    assert!(pause.end(tried));
    assert_eq!(pause.refuse(now, None, None), Some(secs(1)));
}

#[test]
fn a_try_without_an_answer_lets_another_try() {
    let now = Instant::now();
    let mut pause = Pause::new();
    pause.refuse(now, None, None);
    let over = now + secs(1);
    let tried = tries(&mut pause, over);
    pause.untried(tried);
    assert_eq!(pause.opens(Line::Back, over), Opens::Now);
    tries(&mut pause, over);
}

#[test]
fn a_try_that_was_given_up_does_not_end_the_one_after_it() {
    let now = Instant::now();
    let mut pause = Pause::new();
    pause.refuse(now, None, None);
    let given_up = tries(&mut pause, now + secs(1));
    let later = now + secs(31);
    let second = tries(&mut pause, later);
    pause.untried(given_up);
    assert!(!pause.end(given_up), "it was accepted too late");
    assert_eq!(pause.refuse(later, None, Some(given_up)), None);
    assert_eq!(pause.opens(Line::Back, later), Opens::At(later + secs(30)));
    assert_eq!(pause.refuse(later, None, Some(second)), Some(secs(2)));
}

#[test]
fn a_late_refusal_does_not_disturb_the_one_that_tries() {
    let now = Instant::now();
    let mut pause = Pause::new();
    pause.refuse(now, None, None);
    tries(&mut pause, now + secs(1));
    assert_eq!(pause.refuse(now + secs(1), None, None), None);
    assert_eq!(
        pause.opens(Line::Back, now + secs(9)),
        Opens::At(now + secs(31))
    );
}

#[test]
fn only_the_try_is_told_of_a_shorter_pause() {
    let now = Instant::now();
    let mut pause = Pause::new();
    pause.refuse(now, Some(secs(86_400)), None);
    pause.refuse(now, Some(secs(7_200)), None);
    assert_eq!(pause.told(), Some(now + secs(86_400)));
    let over = now + secs(60);
    let tried = tries(&mut pause, over);
    pause.refuse(over, None, Some(tried));
    assert_eq!(
        pause.told(),
        Some(now + secs(86_400)),
        "no hint is no news of it"
    );
    let over = over + secs(60);
    let tried = tries(&mut pause, over);
    pause.refuse(over, Some(secs(7_200)), Some(tried));
    assert_eq!(pause.told(), Some(over + secs(7_200)));
    let over = over + secs(60);
    let tried = tries(&mut pause, over);
    assert_eq!(
        pause.refuse(over, Some(secs(30)), Some(tried)),
        Some(secs(30))
    );
    assert_eq!(pause.told(), None, "half a minute is waited for");
}

#[test]
fn a_try_that_is_never_answered_is_given_up() {
    let now = Instant::now();
    let mut pause = Pause::new();
    pause.refuse(now, Some(secs(1)), None);
    let mut over = now + secs(1);
    for _ in 0..3 {
        tries(&mut pause, over);
        assert_eq!(pause.opens(Line::Back, over), Opens::At(over + secs(30)));
        over += secs(30);
        assert_eq!(pause.opens(Line::Back, over), Opens::Now);
    }
}

#[test]
fn a_hint_that_no_clock_reaches_is_told_as_a_year() {
    let now = Instant::now();
    let mut pause = Pause::new();
    pause.refuse(now, Some(Duration::from_secs(u64::MAX)), None);
    assert!(
        pause
            .told()
            .is_some_and(|told| told > now + secs(300 * 86_400))
    );
}
