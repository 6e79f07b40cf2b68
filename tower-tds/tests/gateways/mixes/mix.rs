//! One mix: the choices that a seed makes.

use std::{
    fmt::{self, Display},
    num::NonZeroU32,
    time::Duration,
};

use fastrand::Rng;
use tower_tds::{
    Limits, Quota,
    layers::limits::{Burst, Rules},
};

use crate::audit::{self, Span};

#[derive(Debug, Clone)]
pub(crate) struct Mix {
    pub(crate) seed: u64,
    pub(crate) stack: Stack,
    pub(crate) counts: Counts,
    /// Ways of counting that the limiter claims to be safe against.
    pub(crate) rules: Rules,
    pub(crate) requests: u32,
    pub(crate) per: Duration,
    pub(crate) sockets: u32,
    /// In some mixes there are more of them than sockets, so that connects wait as well.
    pub(crate) in_flight: u32,
    /// Longest delay of the network in each direction.
    pub(crate) delay: Duration,
    /// When and for how long nothing passes.
    pub(crate) cut: Option<(Duration, Duration)>,
    /// Percent of the calls that are cancelled.
    pub(crate) cancels: u8,
    pub(crate) lost_after: Duration,
    pub(crate) runs: Duration,
}

/// The layers, as users build them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Stack {
    Bare,
    Client,
}

/// The instant at which a server counts a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Counts {
    Arrival,
    Begin,
    End,
}

/// The largest count of one way of counting, and its limit.
#[derive(Debug)]
pub(crate) struct Level {
    what: &'static str,
    reached: f64,
    limit: u32,
}

// === impl Mix ===

impl Mix {
    /// Stacks, rules and cuts take turns, so that sixteen seeds contain all of them. The rest is
    /// random.
    pub(crate) fn of(seed: u64, runs: Duration, cut: Duration) -> Self {
        let mut rng = Rng::with_seed(seed);
        let turn =
            |every: u64, of: u64| usize::try_from(seed / every % of).expect("a small number");
        let delay = Duration::from_millis([0, 20, 100, 300][rng.usize(..4)]);
        let rules = [Rules::window(), COUNTER, ALL][turn(3, 3)];
        // A bucket of ten is full only if more than ten can be in flight.
        let sockets = rng.u32(4..16) + if rules == ALL { AT_ONCE } else { 0 };
        let begins = runs.mul_f64(0.2 + 0.2 * rng.f64());
        let cut = (turn(1, 2) == 1).then_some((begins, cut));
        // A request that was given up arrives when the cut ends.
        let stays = cut.map(|(_, length)| length);
        Self {
            seed,
            stack: [Stack::Bare, Stack::Bare, Stack::Client][turn(1, 3)],
            counts: [Counts::Arrival, Counts::Begin, Counts::End][rng.usize(..3)],
            rules,
            requests: rng.u32(6..24),
            per: Duration::from_millis(rng.u64(400..=1_000)),
            sockets,
            in_flight: sockets - 1 + rng.u32(..2) * 4,
            delay,
            cut,
            cancels: [0, 20, 50, 80][rng.usize(..4)],
            lost_after: stays.unwrap_or_default() + delay * 2 + SERVED,
            runs,
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        let number = |of: u32| NonZeroU32::new(of).expect("not zero");
        let quota = Quota::new(number(self.requests), self.per).expect("an interval");
        Limits::new(quota)
            .connections(number(self.sockets))
            .in_flight(number(self.in_flight))
            .lost_after(self.lost_after)
            .rules(self.rules)
    }

    /// Finds the largest count of each way that the limiter claims, by the server's times.
    pub(crate) fn audit(&self, counted: &[Duration], sockets: &[Span]) -> Vec<Level> {
        let (requests, per) = (self.requests, self.per);
        // The last socket is for token requests, which only the client makes.
        let most_open = self.sockets - u32::from(self.stack != Stack::Client);
        let level = |what, reached, limit| Level {
            what,
            reached,
            limit,
        };
        let interval = audit::fullest_interval(counted, per) as f64;
        let mut levels = vec![level("window", interval, requests)];
        if self.rules != Rules::window() {
            let counter = audit::fullest_counter(counted, per);
            levels.push(level("counter", counter, requests));
        }
        if self.rules == ALL {
            let bucket = audit::fullest_bucket(counted, requests, per);
            levels.push(level("bucket", bucket, AT_ONCE));
        }
        levels.push(level(
            "sockets",
            audit::most_open(sockets) as f64,
            most_open,
        ));
        levels
    }
}

// === impl Level ===

impl Level {
    pub(crate) fn is_over(&self) -> bool {
        self.reached > f64::from(self.limit) + 1e-6
    }
}

impl Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:.1} of {}", self.what, self.reached, self.limit)
    }
}

#[test]
fn each_rule_that_a_mix_claims_is_audited() {
    let mut mix = Mix::of(0, Duration::from_secs(20), Duration::from_secs(5));
    (mix.requests, mix.per, mix.sockets) = (12, Duration::from_secs(1), 4);
    mix.stack = Stack::Client;
    let at =
        |millis: &[u64]| -> Vec<_> { millis.iter().map(|at| Duration::from_millis(*at)).collect() };
    let over = |mix: &Mix, counted: &[_], sockets: &[_]| {
        let levels = mix.audit(counted, sockets).into_iter();
        levels
            .filter(Level::is_over)
            .map(|level| level.what)
            .collect::<Vec<_>>()
    };
    let (calm, bucket) = (at(&[0, 100, 200]), at(&[0; 11]));
    let (counter, all) = (at(&[[0; 9], [1_000; 9]].concat()), at(&[0; 13]));
    mix.rules = Rules::window();
    assert_eq!(over(&mix, &counter, &[]), [""; 0]);
    assert_eq!(over(&mix, &all, &[]), ["window"]);
    mix.rules = COUNTER;
    assert_eq!(over(&mix, &bucket, &[]), [""; 0]);
    assert_eq!(over(&mix, &counter, &[]), ["counter"]);
    mix.rules = ALL;
    assert_eq!(over(&mix, &calm, &[]), [""; 0]);
    assert_eq!(over(&mix, &bucket, &[]), ["bucket"]);
    assert_eq!(over(&mix, &all, &[]), ["window", "counter", "bucket"]);
    let open = [(Duration::ZERO, Duration::from_secs(1)); 5];
    assert_eq!(over(&mix, &calm, &open[..4]), [""; 0]);
    assert_eq!(over(&mix, &calm, &open), ["sockets"]);
}

const ALL: Rules = Rules {
    counter: true,
    bucket: Some(Burst::Of(9)),
};

const COUNTER: Rules = Rules {
    counter: true,
    bucket: None,
};

/// Requests that the bucket of these rules takes at once.
const AT_ONCE: u32 = 10;

/// Longest service, and as long again for a machine that is busy with other tests.
const SERVED: Duration = Duration::from_millis(1_500);
