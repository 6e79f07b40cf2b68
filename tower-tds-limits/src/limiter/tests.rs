use super::*;

/// A still lower limit would avoid nothing.
#[test]
fn a_416_lowers_nothing_while_more_sockets_are_open_than_the_limit() {
    let limiter = Limiter::new(Limits::default());
    let (now, stack) = (clock::now(), &limiter.stack);
    let admit = |account: &mut Account| account.admit(Priority::Normal, None);
    let grant = stack.account.update(admit);
    stack.connections.update(|sockets| {
        for _ in 0..30 {
            sockets.admit(Priority::Normal, None);
        }
    });
    for (connections, lowers) in [(29, false), (30, true)] {
        let share = Share {
            connections,
            ..limiter.load().whole
        };
        limiter.set_share(share, now + Duration::from_secs(5), None);
        assert_eq!(stack.lower_sockets(now, grant), lowers);
    }
}

#[test]
fn what_was_given_up_counts_for_lost_after_and_two_intervals() {
    let limiter = Limiter::new(Limits::default());
    let intervals = limiter.limits().quotas()[0].hold() * 2;
    let counts_for = limiter.load().counts_for;
    assert_eq!(counts_for - intervals, Duration::from_secs(10));
}
