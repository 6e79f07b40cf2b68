//! The window compared with its definition, for random requests.

use proptest::prelude::*;

use super::*;
use crate::rule::tests::{Event, UnderWay, fates};

proptest! {
    /// Always backlogged: at each grant fewer than the limit are live by the definition, and
    /// where one more has to wait, as many as the limit are live a moment before it may go.
    #[test]
    fn a_grant_is_made_as_soon_as_fewer_than_the_limit_are_live(
        limit in 1_u32..12,
        fates in fates(0..2_500, 0..500, 120),
    ) {
        let quota = Quota::per_second(NonZeroU32::new(limit).expect("not zero"));
        let mut window = Window::new(quota);
        let mut now = START;
        let mut coming = UnderWay::default();
        // When each request stops being live, or never while it is unproven.
        let mut proven: Vec<Tick> = Vec::new();
        for fate in fates {
            loop {
                for (at, event) in coming.happened(now) {
                    window.advance(at);
                    if event == Event::Proven {
                        window.prove(at);
                        proven.push(at + HOLD);
                    } else {
                        window.withdraw();
                    }
                }
                window.advance(now);
                let live = |at: Tick| coming.len() + proven.iter().filter(|end| **end > at).count();
                prop_assert_eq!(window.live(), u64::try_from(live(now)).expect("few"));
                let is_open = live(now) < usize::try_from(limit).expect("few");
                prop_assert_eq!(window.opens_at().is_some_and(|at| at <= now), is_open);
                let next = coming.next();
                match window.opens_at() {
                    Some(at) if at <= now => {
                        prop_assert!(is_open);
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
            coming.add(now, fate);
        }
    }
}
