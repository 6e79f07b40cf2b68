use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::Timestamp;

const HOUR: Duration = Duration::from_secs(3_600);

fn now() -> Timestamp {
    Timestamp {
        steady: Instant::now(),
        wall: SystemTime::UNIX_EPOCH + 400_000 * HOUR,
    }
}

#[test]
fn timestamp_is_reached_on_the_earlier_of_two_clocks() {
    let now = now();
    let due = now.checked_add(HOUR).unwrap();
    assert_eq!(due.left_at(now), HOUR);
    let suspended = Timestamp {
        wall: now.wall + 8 * HOUR,
        ..now
    };
    assert!(due.has_come_at(suspended) && !due.has_come_at(now));
    assert_eq!(now.age_at(suspended), 8 * HOUR);
    let set_back = Timestamp {
        steady: now.steady + HOUR,
        wall: now.wall - 24 * HOUR,
    };
    assert!(due.has_come_at(set_back));
    assert_eq!(now.age_at(set_back), HOUR);
}

#[test]
fn hostile_durations_are_refused() {
    assert_eq!(now().checked_add(Duration::MAX), None);
}
