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
