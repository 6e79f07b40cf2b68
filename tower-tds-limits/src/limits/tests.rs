use super::*;

/// Another clock's interval may be shorter than this one's, by half a thousandth and the resolution of a timer.
#[test]
fn a_request_is_held_longer_than_the_interval_of_a_slow_clock() {
    for seconds in [1, 7, 60, 3_600, 86_400] {
        let per = Duration::from_secs(seconds);
        let quota = Quota::new(NonZeroU32::MIN, per).expect("an interval");
        let slow = per + per / 2_000 + Duration::from_millis(1);
        assert!(quota.hold() >= slow, "{seconds} s: {:?}", quota.hold());
        assert!(
            quota.hold() <= slow + Duration::from_millis(2),
            "{seconds} s"
        );
    }
}

#[test]
fn requests_in_flight_follow_the_connections_unless_they_are_given() {
    let count = |n| NonZeroU32::new(n).expect("it is not zero");
    assert_eq!(Limits::default().most_in_flight(), count(59));
    for (connections, in_flight) in [(1, 1), (2, 1), (3, 2), (60, 59), (61, 60)] {
        let limits = Limits::default().connections(count(connections));
        assert_eq!(limits.most_in_flight(), count(in_flight), "{connections}");
    }
    let given = Limits::default().in_flight(count(100));
    assert_eq!(
        given.clone().connections(count(7)).most_in_flight(),
        count(100)
    );
    let then = Limits::default().connections(count(7));
    assert_eq!(then.in_flight(count(100)).most_in_flight(), count(100));
}
