use super::*;

const VALUE: &str = "7,20,4,30,25,4,30,50,10,60,1,1002,1060000,12004,2,0,\"web-1.example:4321\"";

#[test]
fn silent_member_has_times_until_its_permits_are_free() {
    let seconds = Duration::from_secs;
    let of = |now, anew| Record::of("a", VALUE, now, anew).unwrap();
    let live = of(1_063_000, 0);
    assert_eq!(live.process, "web-1.example:4321");
    assert_eq!((live.held.requests, live.wants), (20, 25));
    assert_eq!(live.seen, seconds(3));
    assert_eq!(live.sockets_free_in, Duration::ZERO);
    let silent = of(1_066_000, 0);
    assert_eq!(silent.requests_free_in, Duration::from_millis(11_004));
    assert_eq!(silent.sockets_free_in, seconds(74));
    // The clock was set a second ago.
    assert_eq!(
        of(1_066_000, 1_065_500).sockets_free_in,
        Duration::from_millis(74_500)
    );
}

/// A store of another program, or a broken one, may hold anything.
#[test]
fn broken_record_is_left_out_or_read_without_a_panic() {
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..100_000 {
        let mut values: Vec<_> = VALUE.split(',').map(str::to_owned).collect();
        values[rng.usize(..17)] =
            ["", "-1", "x", "18446744073709551615", "1e9"][rng.usize(..5)].to_owned();
        values.truncate(if rng.bool() { 17 } else { rng.usize(..17) });
        let now = if rng.bool() { 1_066_000 } else { u64::MAX };
        drop(Record::of("a", &values.join(","), now, rng.u64(..)));
    }
    assert_eq!(Record::of("a", "7,20", 0, 0), None);
}
