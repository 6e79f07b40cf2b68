//! The spacing beside the theorem about it.

use proptest::prelude::*;

use super::*;

proptest! {
    /// Whatever was seen, and however late a timer is: fifty sends in a row span the period and
    /// the difference between the longest and the shortest answer, at least.
    #[test]
    fn fifty_in_a_row_span_the_period_and_the_jitter_seen(
        least in 0_u64..300,
        jitter in 0_u64..200,
        took in prop::collection::vec(0_u64..=100, 600..700),
        late in prop::collection::vec(0_u64..2_000, 100..200),
    ) {
        let mut rule = super::jitter();
        let mut now = START;
        let (mut shortest, mut longest) = (u64::MAX, 0);
        for share in took {
            now = now.plus(20 * MS);
            let took = (least * 100 + jitter * share) * MS / 100;
            (shortest, longest) = (shortest.min(took), longest.max(took));
            rule.learn(now, took);
        }
        let jitter = longest - shortest;
        now = now.plus(2_000 * MS);
        let known = !matches!(rule.spacing(now), Spacing::Unknown);
        // What is remembered may be less than all that there was, never more.
        prop_assert!(known || jitter > LARGEST);
        let mut sent = Vec::new();
        for late in late {
            let Spacing::Alone(due) = rule.spacing(now) else {
                break;
            };
            now = now.max(due).plus(late * 1_000);
            rule.grant(now);
            sent.push(now);
        }
        for span in sent.windows(51) {
            prop_assert!(span[50].since(span[0]) >= 1_002 * MS + jitter);
        }
    }
}
