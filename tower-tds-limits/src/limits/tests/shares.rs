use proptest::prelude::*;

use super::*;

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("a count is not zero")
}

#[test]
fn the_default_limits_can_be_divided_over_eleven() {
    assert_eq!(
        Limits::default().shares(count(11)).expect("eleven").len(),
        11
    );
    assert_eq!(Limits::default().shares(count(12)), None);
}

#[test]
fn one_share_is_the_whole_but_for_what_is_not_proven() {
    let whole = Limits::default();
    let one = whole.shares(NonZeroU32::MIN).expect("one");
    let proven = Rules::default().bucket(Burst::Of(10));
    assert_eq!(one, [whole.clone().rules(proven)]);
}

#[test]
fn what_is_one_cannot_be_divided() {
    let serial = Rules::window().bucket(Burst::Of(0));
    for limits in [
        Limits::default().rules(serial),
        Limits::default().connections(count(1)),
        Limits::default().in_flight(count(1)),
        Limits::default().also(Quota::per_minute(count(1))),
    ] {
        assert!(limits.shares(count(1)).is_some());
        assert_eq!(limits.shares(count(2)), None);
    }
}

proptest! {
    #[test]
    fn the_shares_of_everything_add_up_to_the_whole(
        requests in vec_of_counts(),
        in_flight in counts(),
        connections in counts(),
        burst in 0_u32..500,
        processes in counts(),
    ) {
        let quotas: Vec<_> = requests
            .iter()
            .map(|n| Quota::new(*n, Duration::from_secs(7)).expect("seven seconds"))
            .collect();
        let first = *quotas.first().expect("one at least");
        let rules = Rules::default().bucket(Burst::Of(burst));
        let limits = Limits::new(first)
            .in_flight(in_flight)
            .connections(connections)
            .rules(rules);
        let limits = quotas.iter().skip(1).fold(limits, |limits, quota| limits.also(*quota));
        let Some(shares) = limits.shares(processes) else {
            let smallest = requests.iter().copied().chain([in_flight, connections]).min();
            let smallest = smallest.map_or(1, NonZeroU32::get).min(burst.saturating_add(1));
            prop_assert!(smallest < processes.get());
            return Ok(());
        };
        let sum = |of: &dyn Fn(&Limits) -> u32| shares.iter().map(of).sum::<u32>();
        prop_assert_eq!(shares.len(), usize::try_from(processes.get()).expect("few"));
        prop_assert_eq!(sum(&|share| share.in_flight.get()), in_flight.get());
        prop_assert_eq!(sum(&|share| share.connections.get()), connections.get());
        for (n, quota) in quotas.iter().enumerate() {
            prop_assert_eq!(sum(&|share| share.quotas[n].requests().get()), quota.requests().get());
            prop_assert!(shares.iter().all(|share| share.quotas[n].per() == quota.per()));
        }
        let at_once = sum(&|share| share.at_once().map_or(0, NonZeroU32::get));
        prop_assert_eq!(at_once, burst.saturating_add(1));
    }
}

fn counts() -> impl Strategy<Value = NonZeroU32> {
    (1_u32..200).prop_map(count)
}

fn vec_of_counts() -> impl Strategy<Value = Vec<NonZeroU32>> {
    proptest::collection::vec(counts(), 1..4)
}
