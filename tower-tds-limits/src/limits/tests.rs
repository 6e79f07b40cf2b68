use super::*;

#[test]
fn guard_of_a_one_second_quota_is_two_milliseconds() {
    let quota = Quota::per_second(NonZeroU32::MIN);
    assert_eq!(quota.hold(), Duration::from_millis(1_002));
}

#[test]
fn the_guard_grows_with_the_interval() {
    let quota = Quota::per_minute(NonZeroU32::MIN);
    assert_eq!(quota.hold(), Duration::from_micros(60_031_500));
}

#[test]
fn zero_or_too_long_interval_gives_no_quota() {
    let one = NonZeroU32::MIN;
    assert_eq!(Quota::new(one, Duration::ZERO), None);
    assert_eq!(Quota::new(one, Duration::MAX), None);
    assert!(Quota::new(one, LONGEST_PER).is_some());
}

#[test]
fn requests_in_flight_follow_the_connections_unless_they_are_given() {
    let count = |n| NonZeroU32::new(n).expect("it is not zero");
    assert_eq!(Limits::default().in_flight, count(59));
    for (connections, in_flight) in [(1, 1), (2, 1), (3, 2), (60, 59), (61, 60)] {
        let limits = Limits::default().connections(count(connections));
        assert_eq!(limits.in_flight, count(in_flight), "{connections}");
    }
    let given = Limits::default().in_flight(count(100));
    assert_eq!(given.clone().connections(count(7)).in_flight, count(100));
    let then = Limits::default().connections(count(7));
    assert_eq!(then.in_flight(count(100)).in_flight, count(100));
}
