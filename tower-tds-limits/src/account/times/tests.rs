use super::*;

const MS: u64 = MILLISECOND;

fn at(millis: u64) -> Tick {
    Tick::ZERO.plus(millis * MS)
}

fn within(millis: u64) -> Octave {
    Octave::of(Some(&Deadline {
        at: tokio::time::Instant::now(),
        whole: Duration::from_millis(millis),
        has_body: false,
    }))
}

fn usual(times: &Times, octave: Octave, millis: u64) -> Option<u128> {
    times
        .usual(octave, at(millis))
        .map(|usual| usual.as_millis())
}

#[test]
fn steady_times_are_usual_within_two_milliseconds() {
    let (mut times, second) = (Times::default(), within(1_000));
    assert_eq!(usual(&times, second, 0), None);
    for nth in 0..40 {
        times.learn(second, 80 * MS, at(nth));
    }
    assert!(usual(&times, second, 40).is_some_and(|usual| (80..84).contains(&usual)));
}

#[test]
fn quick_calls_with_short_deadlines_stay_apart_from_slow_ones() {
    let mut times = Times::default();
    let [short, long, other] = [1_000, 10_000, 100].map(within);
    for nth in 0..40 {
        times.learn(short, 80 * MS, at(nth));
        times.learn(long, 2_000 * MS, at(nth));
    }
    assert!(usual(&times, short, 40) < Some(90));
    assert!(usual(&times, long, 40) >= Some(2_000));
    // Those of all calls stand for an octave without its own.
    assert!(usual(&times, other, 40) > Some(500));
    times.learn(long, 2_000 * MS, at(12_000));
    assert!(
        usual(&times, short, 12_000) >= Some(500),
        "its own are forgotten"
    );
    assert_eq!(usual(&times, short, 22_001), None);
}

#[test]
fn any_time_has_an_octave() {
    for millis in [0, 1, 1_000, u64::MAX / 1_000_000] {
        assert!(usize::from(within(millis).0) < OCTAVES, "{millis}");
    }
    assert_eq!(Octave::of(None), within(60_000));
}
