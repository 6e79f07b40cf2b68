//! Any rules, and whatever can become of requests.

use proptest::prelude::*;

use super::*;

/// What becomes of a request, in milliseconds.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// Counted so long after its grant, and answered so long after that.
    Answered(u64, u64),
    /// Counted or not, and never answered; given up so long after its grant.
    Lost(Option<u64>, u64),
    /// Never sent, which is known so long after its grant.
    Unsent(u64),
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => (0_u64..1_500, 0_u64..1_500).prop_map(|(there, back)| Fate::Answered(there, back)),
        1 => (0_u64..1_000, 0_u64..500).prop_map(|(there, up)| Fate::Lost(Some(there), up)),
        1 => (0_u64..500).prop_map(|up| Fate::Lost(None, up)),
        1 => (0_u64..300).prop_map(Fate::Unsent),
    ]
}

fn any_rules() -> impl Strategy<Value = Rules> {
    (
        any::<bool>(),
        prop::option::of(0_u32..6),
        prop::option::of(1_u32..6),
    )
        .prop_map(|(counter, bucket, pace)| {
            let mut rules = Rules::window();
            if counter {
                rules = rules.counter();
            }
            if let Some(burst) = bucket {
                rules = rules.bucket(Burst::Of(burst));
            }
            if let Some(burst) = pace {
                rules = rules.pace(count(burst));
            }
            rules
        })
}

proptest! {
    /// Whatever becomes of the requests, and whichever rules are kept: the service never counts
    /// more than the quota in an interval, nor more than the bucket takes.
    #[test]
    fn what_is_counted_stays_within_every_rule_that_is_kept(
        limit in 1_u32..12,
        rules in any_rules(),
        fates in prop::collection::vec(fate(), 1..120),
    ) {
        let start = Instant::now();
        // A lost request is counted within a second.
        let limits = Limits::new(Quota::per_second(count(limit)))
            .rules(rules)
            .lost_after(ms(1_000));
        let mut requests = Requests::new(&limits);
        let mut coming: Vec<(Duration, usize)> = Vec::new();
        let mut granted: Vec<(Grant, Fate)> = Vec::new();
        let mut counted = Vec::new();
        let mut now = Duration::ZERO;
        for fate in fates {
            loop {
                coming.sort_unstable();
                while coming.first().is_some_and(|(at, _)| *at <= now) {
                    let (at, number) = coming.remove(0);
                    let (grant, fate) = granted[number];
                    match fate {
                        Fate::Answered(..) => {
                            requests.answer(start + at, grant, Outcome::Answered, true);
                        }
                        Fate::Lost(..) => {
                            requests.lose(start + at);
                            requests.end();
                        }
                        Fate::Unsent(_) => {
                            requests.withdraw();
                            requests.end();
                        }
                    }
                }
                let next = coming.first().map(|(at, _)| *at);
                now = match requests.earliest(start + now) {
                    Earliest::Now => break,
                    Earliest::At(at) => next.map_or(at - start, |next| next.min(at - start)),
                    Earliest::OnReturn => next.expect("somebody holds the permits"),
                };
            }
            let grant = requests
                .admit_undated()
                .unwrap_or_else(|| requests.admit(start + now));
            let over = match fate {
                Fate::Answered(there, back) => {
                    counted.push(now + ms(there));
                    now + ms(there + back)
                }
                Fate::Lost(there, up) => {
                    counted.extend(there.map(|there| now + ms(there)));
                    now + ms(up)
                }
                Fate::Unsent(up) => now + ms(up),
            };
            coming.push((over, granted.len()));
            granted.push((grant, fate));
        }
        counted.sort_unstable();
        let n = usize::try_from(limit).expect("a small limit");
        prop_assert!(largest_second(&counted) <= n);
        prop_assert!(requests.certificate() <= u64::from(limit));
        if let Some(Burst::Of(burst)) = rules.bucket {
            let level = largest_level_at(&counted, f64::from(limit));
            let burst = f64::from(burst.min(limit - 1));
            prop_assert!(level <= burst + 1e-6, "{level} in a bucket of {burst}");
        }
    }
}
