//! The window beside its definition, whatever becomes of the requests.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]

use proptest::prelude::*;

use super::*;

/// What becomes of a request so many milliseconds after its grant.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Proven(u64),
    Withdrawn(u64),
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => (0_u64..2_500).prop_map(Fate::Proven),
        1 => (0_u64..500).prop_map(Fate::Withdrawn),
    ]
}

proptest! {
    /// Always backlogged: at each grant fewer than the limit are live by the definition, and
    /// where one more has to wait, as many as the limit are live a moment before it may go.
    #[test]
    fn a_grant_is_made_as_soon_as_fewer_than_the_limit_are_live(
        limit in 1_u32..12,
        fates in prop::collection::vec(fate(), 1..120),
    ) {
        let quota = Quota::per_second(NonZeroU32::new(limit).expect("not zero"));
        let mut window = ProofWindow::new(quota);
        let mut now = START;
        let mut coming: Vec<(Tick, bool)> = Vec::new();
        // Until when each request is live; of the unproven nobody knows.
        let mut proven: Vec<Tick> = Vec::new();
        for fate in fates {
            loop {
                coming.sort_unstable();
                while coming.first().is_some_and(|(at, _)| *at <= now) {
                    let (at, proof) = coming.remove(0);
                    window.see(at);
                    if proof {
                        window.prove(at);
                        proven.push(at + HOLD);
                    } else {
                        window.withdraw();
                    }
                }
                window.see(now);
                let live = |at: Tick| coming.len() + proven.iter().filter(|end| **end > at).count();
                prop_assert_eq!(window.live(), u64::try_from(live(now)).expect("few"));
                let next = coming.first().map(|(at, _)| *at);
                match window.opens_at() {
                    Some(at) if at <= now => {
                        prop_assert!(live(now) < usize::try_from(limit).expect("few"));
                        break;
                    }
                    Some(at) => {
                        let full = live(at.minus(1)) >= usize::try_from(limit).expect("few");
                        prop_assert!(full || next.is_some_and(|next| next < at));
                        now = next.map_or(at, |next| next.min(at));
                    }
                    None => now = next.expect("someone is unproven"),
                }
            }
            window.grant();
            coming.push(match fate {
                Fate::Proven(after) => (now + ms(after), true),
                Fate::Withdrawn(after) => (now + ms(after), false),
            });
        }
    }
}
