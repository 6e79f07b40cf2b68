use super::*;

const MS: u64 = MILLISECOND;

fn within(millis: u64) -> u8 {
    octave(Some(&CallDeadline {
        at: tokio::time::Instant::now(),
        whole: Duration::from_millis(millis),
        has_body: false,
    }))
}

#[test]
fn steady_times_are_usual_within_two_milliseconds_and_short_deadlines_stay_apart_from_long_ones() {
    let mut times = UsualTimes::default();
    let [short, long, other] = [1_000, 10_000, 100].map(within);
    for _ in 0..40 {
        times.learn(short, 80 * MS);
        times.learn(long, 2_000 * MS);
    }
    let usual = |octave| times.usual(octave).as_millis();
    assert!((80..84).contains(&usual(short)));
    assert!(usual(long) >= 2_000);
    assert_eq!(usual(other), 2);
}
