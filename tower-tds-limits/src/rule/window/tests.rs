use std::num::NonZeroU32;

use super::*;

const HOLD: Duration = Duration::from_millis(1_002);

fn two_a_second() -> ProofWindow {
    ProofWindow::new(Quota::per_second(
        NonZeroU32::new(2).expect("2 is not zero"),
    ))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn permits_run_out_and_nobody_knows_until_when() {
    let start = Instant::now();
    let mut window = two_a_second();
    assert_eq!(window.earliest_at(start), Earliest::Now);
    window.grant();
    assert_eq!(window.earliest_at(start), Earliest::Now);
    window.grant();
    assert_eq!(window.earliest_at(start), Earliest::OnReturn);
    assert_eq!(window.earliest_at(start + ms(60_000)), Earliest::OnReturn);
}

#[test]
fn a_permit_comes_back_an_interval_and_a_guard_after_the_proof() {
    let start = Instant::now();
    let mut window = two_a_second();
    window.grant();
    window.grant();
    window.prove_at(start + ms(80));
    let back = start + ms(80) + HOLD;
    assert_eq!(window.earliest_at(start + ms(80)), Earliest::At(back));
    assert_eq!(window.earliest_at(back - ms(1)), Earliest::At(back));
    assert_eq!(window.live_at(back), 1);
    assert_eq!(window.earliest_at(back), Earliest::Now);
}

#[test]
fn a_slow_request_holds_back_nobody_but_itself() {
    let start = Instant::now();
    let mut window = two_a_second();
    window.grant(); // Never proven here.
    let mut now = start;
    for _ in 0..10 {
        assert_eq!(window.earliest_at(now), Earliest::Now);
        window.grant();
        window.prove_at(now + ms(5));
        assert_eq!(window.live_at(now + ms(5)), 2);
        now += ms(5) + HOLD;
    }
}

#[test]
fn a_withdrawn_permit_is_back_at_once() {
    let start = Instant::now();
    let mut window = two_a_second();
    window.grant();
    window.grant();
    window.withdraw();
    assert_eq!(window.live_at(start), 1);
    assert_eq!(window.earliest_at(start), Earliest::Now);
}
