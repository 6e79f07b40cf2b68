use std::time::Duration;

use super::{History, SHOWN, STEP, Sample};

/// Metrics of a backend that has sent `granted` requests and served these users.
fn metrics(granted: u64, hits: u64, misses: u64) -> String {
    let all = hits + misses;
    format!(
        "# HELP tds_granted_total Permits that were granted.\n\
         tds_granted_total {granted}\n\n\
         tds_users_requests_total{{status=\"200\",cache=\"hit\"}} {hits}\n\
         tds_users_requests_total{{status=\"504\",cache=\"miss\"}} {misses}\n\
         tds_users_requests_total{{status=\"200\",cache=\"none\"}} 77\n\
         tds_users_seconds_bucket{{le=\"0.001\"}} {hits}\n\
         tds_users_seconds_bucket{{le=\"0.1\"}} {all}\n\
         tds_users_seconds_bucket{{le=\"+Inf\"}} {all}\n\
         tds_users_seconds_count {all}\n"
    )
}

#[test]
fn rate_is_over_the_interval_of_its_limit() {
    let history = History::default();
    assert_eq!(history.rates(STEP), Vec::<f64>::new());
    for step in 0..3 * SHOWN as u64 {
        // Fifty in each minute, all of them in its first step.
        history.push(Sample::of(&metrics(50 * (1 + step / 12), 0, 0)));
    }
    let second = history.rates(Duration::from_secs(1));
    assert_eq!(second.len(), SHOWN);
    assert_eq!((second[0], second[1], second[12]), (10.0, 0.0, 10.0));
    for per in [60, 120, 600, 86_400] {
        let rates = history.rates(Duration::from_secs(per));
        let right = |rate: &f64| (rate - 50.0 / 60.0).abs() < 1e-9;
        assert!(
            rates.len() == SHOWN && rates.iter().all(right),
            "{per}: {rates:?}"
        );
    }
}

#[test]
fn first_requests_count_although_nothing_is_known_before_them() {
    let history = History::default();
    history.push(Sample::of(&metrics(50, 0, 0)));
    assert_eq!(history.rates(Duration::from_secs(1)), [10.0]);
    assert_eq!(history.rates(Duration::from_secs(50)), [1.0]);
}

#[test]
fn users_of_the_last_ten_minutes_count() {
    let history = History::default();
    let none = [None; 3];
    assert_eq!(history.users(), none);
    history.push(Sample::of(&metrics(0, 0, 0)));
    assert_eq!(history.users(), none);
    history.push(Sample::of(&metrics(0, 75, 25)));
    let users = history.users();
    assert_eq!(users[0], Some(0.75));
    let near = |time: Option<f64>, right: f64| (time.expect("some") - right).abs() < 1e-9;
    assert!(near(users[1], 0.001 * 50.0 / 75.0), "{users:?}");
    assert!(near(users[2], 0.001 + 0.099 * 24.0 / 25.0), "{users:?}");
    for _ in 0..SHOWN {
        history.push(Sample::of(&metrics(0, 75, 25)));
    }
    assert_eq!(history.users(), none);
}

#[test]
fn longest_waits_are_at_least_the_longest_known_time() {
    let history = History::default();
    let metrics =
        "tds_users_seconds_bucket{le=\"120\"} 1\ntds_users_seconds_bucket{le=\"+Inf\"} 9\n";
    history.push(Sample::of(metrics));
    assert_eq!(history.users()[2], Some(120.0));
}
