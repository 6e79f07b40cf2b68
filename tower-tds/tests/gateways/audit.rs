//! Exact auditors: how full each way of counting becomes over the recorded times, in hindsight.
//!
//! Times are sorted. Nothing is sampled: between the instants that an auditor tries, its count
//! cannot be larger.

use std::time::Duration;

/// From the first time until before the second.
pub(crate) type Span = (Duration, Duration);

/// Returns the most requests in any half-open interval of the length `per`.
///
/// Fixed windows of every phase and sliding logs are such intervals, and a fullest one begins at a
/// request.
pub(crate) fn fullest_interval(times: &[Duration], per: Duration) -> usize {
    let from = |(nth, begin): (usize, &Duration)| {
        times[nth..].partition_point(|time| *time < *begin + per)
    };
    times.iter().enumerate().map(from).max().unwrap_or(0)
}

/// Returns the largest estimate of a sliding-window counter, over every alignment of its windows:
/// the requests of the current window, and those of the window before, weighted by the part of it
/// that the last interval covers.
///
/// For a given request, the estimate rises with the begin of the current window, until a request
/// leaves that window or the one before. So only begins at a request, or one interval after it, are
/// tried.
pub(crate) fn fullest_counter(times: &[Duration], per: Duration) -> f64 {
    let mut largest = 0.0_f64;
    for (nth, now) in times.iter().enumerate() {
        let until_now = &times[..=nth];
        let recent = &until_now[until_now.partition_point(|time| *time + per + per <= *now)..];
        let since = |begin: Duration| recent.len() - recent.partition_point(|time| *time < begin);
        let begins = recent.iter().flat_map(|time| [*time, *time + per]);
        for begin in begins.filter(|begin| *begin <= *now && *now < *begin + per) {
            let current = since(begin);
            let previous = since(begin.saturating_sub(per)) - current;
            let weight = (begin + per - *now).div_duration_f64(per);
            largest = largest.max(previous as f64 * weight + current as f64);
        }
    }
    largest
}

/// Returns the highest level of a leaky bucket that `limit` requests in each `per` drain, the
/// request that has just come included.
pub(crate) fn fullest_bucket(times: &[Duration], limit: u32, per: Duration) -> f64 {
    let (mut level, mut largest) = (0.0_f64, 0.0_f64);
    let mut last = Duration::ZERO;
    for time in times {
        let drained = (*time - last).div_duration_f64(per) * f64::from(limit);
        level = (level - drained).max(0.0) + 1.0;
        largest = largest.max(level);
        last = *time;
    }
    largest
}

/// Returns the most sockets that were open at once.
pub(crate) fn most_open(sockets: &[Span]) -> usize {
    let (mut opened, mut ended): (Vec<_>, Vec<_>) = sockets.iter().copied().unzip();
    opened.sort();
    ended.sort();
    let ended_by = |now: &Duration| ended.partition_point(|until| until <= now);
    let open = |(before, now): (usize, &Duration)| before + 1 - ended_by(now);
    opened.iter().enumerate().map(open).max().unwrap_or(0)
}

fn ms(millis: impl IntoIterator<Item = u64>) -> Vec<Duration> {
    millis.into_iter().map(Duration::from_millis).collect()
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn interval_includes_its_begin_and_excludes_its_end() {
    assert_eq!(fullest_interval(&[], SECOND), 0);
    assert_eq!(fullest_interval(&ms([0, 1_000, 2_000]), SECOND), 1);
    assert_eq!(fullest_interval(&ms([0, 999, 1_998]), SECOND), 2);
}

#[test]
fn counter_is_at_least_what_a_fine_grid_of_alignments_shows() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut times = ms((0..60).map(|_| rng.u64(..4_000)));
    times.sort();
    let exact = fullest_counter(&times, SECOND);
    let mut largest = 0.0_f64;
    for phase in ms(0..1_000) {
        for now in &times {
            let window = |time: &Duration| (*time + SECOND - phase).as_nanos() / SECOND.as_nanos();
            let passed = (*now + SECOND - phase).as_nanos() % SECOND.as_nanos();
            let seen = times.iter().filter(|time| *time <= now);
            let count = |of: u128| seen.clone().filter(|time| window(time) == of).count() as f64;
            let weight = 1.0 - passed as f64 / 1e9;
            let estimate = count(window(now).wrapping_sub(1)) * weight + count(window(now));
            largest = largest.max(estimate);
        }
    }
    assert!(exact >= largest - 1e-9, "{exact} {largest}");
    assert!(exact <= largest + 0.5, "{exact} {largest}");
}

#[test]
fn bucket_overflows_by_one_request_at_once() {
    let steady = (0..100).map(|nth| 100 * nth);
    assert!((fullest_bucket(&ms(steady), 10, SECOND) - 1.0).abs() < 1e-9);
    assert!((fullest_bucket(&ms([0; 11]), 10, SECOND) - 11.0).abs() < 1e-9);
    // Two have drained after 200 ms.
    let times = ms([[0; 10], [200; 10]].concat());
    assert!((fullest_bucket(&times, 10, SECOND) - 18.0).abs() < 1e-9);
}

#[test]
fn socket_that_ends_as_another_begins_is_not_open_beside_it() {
    let span = |from, until| (Duration::from_millis(from), Duration::from_millis(until));
    assert_eq!(most_open(&[span(0, 10), span(10, 20)]), 1);
    assert_eq!(most_open(&[span(0, 11), span(10, 20)]), 2);
    assert_eq!(most_open(&[span(0, 9), span(1, 9), span(9, 10)]), 2);
}
