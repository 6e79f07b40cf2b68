use std::{num::NonZeroU32, time::Duration};

use super::*;

const HOLD: Duration = Duration::from_millis(1_002);

fn two_a_second() -> Window {
    Window::new(Quota::per_second(
        NonZeroU32::new(2).expect("2 is not zero"),
    ))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const START: Tick = Tick::ZERO;

#[test]
fn a_lower_limit_holds_from_the_next_grant_on() {
    let mut window = two_a_second();
    window.grant();
    assert_eq!(window.opens_at(), Tick::ZERO);
    window.limit_to(Quota::per_second(NonZeroU32::MIN));
    assert_eq!(window.opens_at(), Tick::NEVER);
}

#[test]
fn old_proofs_are_dropped_before_the_window_grows() {
    for apart in [HOLD, HOLD * 10] {
        let mut window = two_a_second();
        for n in 0..10_000 {
            let now = START + apart * n;
            window.advance(now);
            window.grant();
            window.prove(now);
            assert!(window.opens_at() <= now);
        }
        assert!(window.runs.capacity() <= 8, "{}", window.runs.capacity());
        assert_eq!(window.proven, 10_000);
    }
}

#[test]
fn proofs_of_a_large_quota_share_the_steps_of_its_interval() {
    let thousand = NonZeroU32::new(1_000).expect("1,000 is not zero");
    let mut window = Window::new(Quota::per_second(thousand));
    for n in 0..1_000 {
        window.grant();
        window.prove(START + ms(n));
    }
    let runs = u64::try_from(window.runs.len()).expect("few");
    assert!(runs <= STEPS + 1, "{runs}");
    let last = window.runs.back().map(|run| run.at);
    assert!(last.is_some_and(|at| at >= START + ms(999)), "{last:?}");
}
