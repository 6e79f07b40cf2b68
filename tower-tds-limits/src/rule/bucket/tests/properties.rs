//! The bucket compared with its definition, for random requests.

use proptest::prelude::*;

use super::*;
use crate::rule::tests::{Event, UnderWay, fates};

/// When a bucket is empty, if the proven requests fall into it at their proofs.
fn empties_at(proofs: &[Tick]) -> Tick {
    let fall = |empty: Tick, at: &Tick| empty.max(*at) + SPACING;
    proofs.iter().fold(Tick::ZERO, fall)
}

proptest! {
    /// Always backlogged: with the proven at their proofs and the unproven at now, one more fits
    /// at each grant, and a millisecond before it may go it does not.
    #[test]
    fn a_grant_is_made_as_soon_as_one_more_fits(
        burst in 1_u32..20,
        fates in fates(0..400, 0..300, 150),
    ) {
        let mut bucket = bucket(Burst::Of(burst));
        let mut now = START;
        let mut coming = UnderWay::default();
        let mut proofs: Vec<Tick> = Vec::new();
        for fate in fates {
            loop {
                for (at, event) in coming.happened(now) {
                    let granted = bucket.unseen[0];
                    if event == Event::Proven {
                        bucket.prove(at, granted);
                        proofs.push(at);
                    } else {
                        bucket.withdraw(granted);
                    }
                }
                let unproven = u32::try_from(coming.len()).expect("few");
                let fits = |at: Tick| {
                    let left = Duration::from_nanos(empties_at(&proofs).since(at));
                    unproven <= burst && left <= SPACING * (burst - unproven)
                };
                let next = coming.next();
                match bucket.opens_at(now, 0) {
                    Tick::NEVER => {
                        prop_assert!(!fits(now));
                        now = next.expect("someone is unproven");
                    }
                    at if at <= now => {
                        prop_assert!(fits(now));
                        break;
                    }
                    at => {
                        prop_assert!(!fits(at.minus(1_000_000)));
                        now = next.map_or(at, |next| next.min(at));
                    }
                }
            }
            bucket.grant(now);
            coming.add(now, fate);
        }
    }
}
