use super::*;

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
