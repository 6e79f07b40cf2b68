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
fn request_counts_through_a_gateway_timeout_under_each_proof() {
    let limits = Limits::default().lost_after(Duration::from_secs(10));
    let intervals = limits.quotas()[0].hold() * 2;
    let counted = |proof| {
        let limiter = Limiter::new(limits.clone().proof(proof));
        limiter.load().counts_for - intervals
    };
    assert_eq!(counted(Proof::Head), Duration::from_secs(10));
    assert_eq!(counted(Proof::End), Duration::from_secs(11));
}
