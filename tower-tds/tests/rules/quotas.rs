//! Quotas of a small plan: a few calls a minute, beside 50 a second.

use std::{num::NonZeroU32, time::Duration};

use tds_sim::Rule;
use tower_tds::{Limits, Proof, Quota};

use crate::{accepted, calls, judge::Counting};

fn a_minute(requests: u32) -> Quota {
    Quota::new(
        NonZeroU32::new(requests).expect("not zero"),
        Duration::from_secs(60),
    )
    .expect("a minute")
}

/// Each way of counting, with its proof. The bucket's burst is one less than the quota.
fn ways(limit: u32) -> [(Rule, Proof); 6] {
    [
        (Rule::FixedWindow, Proof::Head),
        (Rule::SlidingLog, Proof::Head),
        (Rule::SlidingLogAll, Proof::Head),
        (Rule::SlidingCounter, Proof::Head),
        (Rule::LeakyBucket { burst: limit - 1 }, Proof::Head),
        (Rule::InFlight, Proof::End),
    ]
}

/// Returns the quota for a rule: 5 per minute, but 6 for a leaky bucket. nginx stores rates in
/// whole thousandths of a request per second, so 5 per minute would become 4.98.
fn few(rule: Rule) -> u32 {
    if matches!(rule, Rule::LeakyBucket { .. }) {
        6
    } else {
        5
    }
}

#[tokio::test(start_paused = true)]
async fn quota_of_five_a_minute_holds_beside_fifty_a_second() {
    let calls = (calls() / 20).max(100);
    for (rule, proof) in ways(6) {
        let few = few(rule);
        let limits = Limits::default().also(a_minute(few)).proof(proof);
        let countings = [Counting::of_50(rule), Counting::a_minute(rule, few)];
        for seen in accepted(&countings, &limits, calls).await {
            // The quota of the minute is used up. The quota of the second never is.
            assert!(seen.largest[1].interval as u32 >= few - 1, "{seen:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_quotas_that_limit_alternately_both_hold() {
    // Bursts use up the quota of seconds, and some of them that of the minute.
    let calls = (calls() / 10).max(600);
    for (rule, proof) in ways(11) {
        let limits = Limits::default().also(a_minute(200)).proof(proof);
        // The default's rule for buckets applies to the quota of the second.
        let minute = match rule {
            Rule::LeakyBucket { .. } => Rule::LeakyBucket { burst: 199 },
            rule => rule,
        };
        let countings = [Counting::of_50(rule), Counting::a_minute(minute, 200)];
        for seen in accepted(&countings, &limits, calls).await {
            assert!(seen.largest[0].interval > 5, "{seen:?}");
        }
    }
}
