use super::*;

#[test]
fn timestamp_is_reached_on_the_earlier_of_two_clocks() {
    let hour = Duration::from_secs(3_600);
    let now = Timestamp {
        steady: Instant::now(),
        wall: SystemTime::UNIX_EPOCH + 400_000 * hour,
    };
    let due = now.checked_add(hour).unwrap();
    assert_eq!(due.left_at(now), hour);
    let suspended = Timestamp {
        wall: now.wall + 8 * hour,
        ..now
    };
    assert!(due.has_come_at(suspended) && !due.has_come_at(now));
    assert_eq!(now.age_at(suspended), 8 * hour);
    let set_back = Timestamp {
        steady: now.steady + hour,
        wall: now.wall - 24 * hour,
    };
    assert!(due.has_come_at(set_back));
    assert_eq!(now.age_at(set_back), hour);
    assert_eq!(now.checked_add(Duration::MAX), None, "a hostile life");
}
