//! Random rules against random fates of requests.

use proptest::prelude::*;

use super::*;

/// Fate of a request, in milliseconds.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// The request is counted after a delay from its grant, and answered after a second delay.
    Answered(u64, u64),
    /// The same, but refused for the rate.
    Refused(u64, u64),
    /// It is counted or not, and given up after a second delay, by its caller or with a gateway's 504.
    Lost(Option<u64>, u64),
    /// It is never sent, which is known after a delay.
    Unsent(u64),
}

/// Time in which a permit was held.
#[derive(Debug, Clone, Copy)]
struct Held {
    from: Duration,
    until: Duration,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        22 => (0_u64..1_500, 0_u64..1_500).prop_map(|(there, back)| Fate::Answered(there, back)),
        1 => (0_u64..1_500, 0_u64..1_500).prop_map(|(there, back)| Fate::Refused(there, back)),
        4 => (0_u64..1_500, 0_u64..=1_000).prop_map(|(up, later)| Fate::Lost(Some(up + later), up)),
        2 => (0_u64..500).prop_map(|up| Fate::Lost(None, up)),
        2 => (0_u64..300).prop_map(Fate::Unsent),
    ]
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let burst = prop_oneof![
        2 => (0_u32..6).prop_map(Burst::Of),
        1 => Just(Burst::Auto),
    ];
    (any::<bool>(), prop::option::of(burst)).prop_map(|(counter, bucket)| Rules { counter, bucket })
}

impl Fate {
    /// When a request granted at `now` is counted, and when it ends.
    fn of(self, now: Duration) -> (Option<Duration>, Duration) {
        match self {
            Self::Answered(there, back) | Self::Refused(there, back) => {
                (Some(now + ms(there)), now + ms(there + back))
            }
            Self::Lost(there, up) => (there.map(|there| now + ms(there)), now + ms(up)),
            Self::Unsent(up) => (None, now + ms(up)),
        }
    }

    /// How long its permit is held, by an independent model without rules.
    fn held(self, from: Duration) -> Held {
        let (_, over) = self.of(from);
        let until = match self {
            Self::Answered(..) | Self::Refused(..) => over + HOLD,
            Self::Lost(..) => over + LOST_AFTER + HOLD,
            Self::Unsent(_) => over,
        };
        Held { from, until }
    }

    /// Records the end of the request.
    fn end(self, account: &mut Account, now: Instant, grant: Granted) {
        let outcome = match self {
            Self::Answered(..) => Outcome::Accepted,
            Self::Refused(..) => Outcome::RateExceeded,
            Self::Lost(..) => return account.lose(now, grant, LOST_AFTER),
            Self::Unsent(_) => return account.withdraw(grant),
        };
        account.prove_by_head(now, grant, outcome, true);
    }
}

/// The most permits that were held at any grant.
fn most_held(held: &[Held]) -> usize {
    // A grant is held when it is made, also one that is withdrawn at the same instant.
    let at = |nth: usize| {
        let (now, others) = (held[nth].from, &held[..nth]);
        1 + others.iter().filter(|held| held.until > now).count()
    };
    (0..held.len()).map(at).max().unwrap_or_default()
}

/// A second, one part in 2,000 of it, and 1.5 ms.
const HOLD: Duration = Duration::from_millis(1_002);

/// A lost request is counted within a second.
const LOST_AFTER: Duration = Duration::from_secs(1);

/// An account that 423s have lowered this many times from the beginning.
fn lowered_account(limits: &Limits, times: u32) -> Account {
    let mut account = Account::new(limits);
    account.reactions = Reactions::lowered_by(times);
    account.keep(Tick::ZERO);
    account
}

proptest! {
    /// The service never counts more than a quota in an interval, under any fate, rule and lower rate. It
    /// never counts more than the counter and the bucket allow. The live permits are those held.
    #[test]
    fn counted_requests_stay_within_every_configured_rule(
        limit in 1_u32..12,
        also in prop::option::of((1_u32..20, 1_200_u64..4_000)),
        rules in any_rules(),
        lowered in prop_oneof![2 => Just(0_u32), 1 => 1_u32..9],
        fates in prop::collection::vec(fate(), 1..120),
    ) {
        let start = Instant::now();
        let mut limits = Limits::new(Quota::per_second(count(limit)))
            .rules(rules)
            .lost_after(LOST_AFTER);
        if let Some((other, per)) = also {
            limits = limits.also(Quota::new(count(other), ms(per)).expect("an interval"));
        }
        let mut account = lowered_account(&limits, lowered);
        let mut coming: Vec<(Duration, usize)> = Vec::new();
        let mut granted: Vec<(Granted, Fate)> = Vec::new();
        let (mut counted, mut held) = (Vec::new(), Vec::new());
        let (mut silent_until, mut live) = (Duration::ZERO, 0);
        let mut now = Duration::ZERO;
        for fate in fates {
            loop {
                coming.sort_unstable();
                while coming.first().is_some_and(|(at, _)| *at <= now) {
                    let (at, number) = coming.remove(0);
                    let (grant, fate) = granted[number];
                    fate.end(&mut account, start + at, grant);
                    if let Fate::Refused(..) = fate {
                        silent_until = at + ms(1_000);
                    }
                }
                let next = coming.first().map(|(at, _)| *at);
                let (opens, _) = account.opens(Priority::Normal, start + now);
                let opens = opens.map(|at| at - start);
                if opens == Some(now) {
                    break;
                }
                let next = opens.into_iter().chain(next).min();
                now = next.expect("somebody holds the permits");
            }
            prop_assert!(now >= silent_until, "granted at {now:?}, in a silence");
            let grant = account.admit(Priority::Normal, None);
            live = live.max(account.rules[0].live(account.seen));
            let (count, over) = fate.of(now);
            counted.extend(count);
            coming.push((over, granted.len()));
            granted.push((grant, fate));
            held.push(fate.held(now));
        }
        counted.sort_unstable();
        let n = usize::try_from(limit).expect("a small limit");
        let largest = largest_second(&counted);
        let live = usize::try_from(live).expect("a small number");
        prop_assert!(largest <= live && live <= n, "{largest}, {live}");
        prop_assert_eq!(live, most_held(&held));
        if let Some((other, per)) = also {
            let largest = largest_interval(&counted, ms(per));
            prop_assert!(largest <= usize::try_from(other).expect("a small limit"));
        }
        if rules.counter {
            let weighted = largest_weighted_second(&counted);
            prop_assert!(weighted <= f64::from(limit) + 1e-6, "{weighted} of {limit}");
        }
        let level = largest_level_at(&counted, f64::from(limit));
        let burst = match rules.bucket {
            Some(Burst::Of(burst)) => burst.min(limit - 1),
            // The window bounds the level by the quota.
            Some(Burst::Auto) | None => limit - 1,
        };
        prop_assert!(level <= f64::from(burst) + 1e-6, "{level} in a bucket of {burst}");
    }
}
