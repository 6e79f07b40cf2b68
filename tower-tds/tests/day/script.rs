//! The faults of a day: one after the other, each with a time to recover.

use std::{
    collections::BTreeMap,
    fmt,
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

use fastrand::Rng;
use http::Request;
use http_body_util::{BodyExt, Full};
use tds_sim::{Delay, Faults, Quota, Sim};
use tokio::time::{Instant, interval, sleep, sleep_until};
use tower::ServiceExt;

use crate::URL;

/// Secret that the identity provider accepts at the moment.
pub(crate) type Secret = Arc<Mutex<String>>;

/// Latest fault, until a while after its end.
pub(crate) type Latest = Arc<Mutex<Option<Fault>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The token endpoint closes connections, answers 503 or hangs. A token is still valid.
    TokenEndpoint,
    /// All tokens are revoked.
    Revoked,
    /// All tokens are revoked while the token endpoint is down.
    RevokedInOutage,
    /// The client gets another secret, and its tokens are revoked.
    SecretRotated,
    /// Bursts of 503 and 500.
    Unavailable,
    /// Heads and bodies are reset.
    Resets,
    /// Bodies end early.
    Truncated,
    /// The service stalls for up to three seconds at a time.
    Stalls,
    /// Bodies pause for two seconds.
    SlowBodies,
    /// The quota of the minute is spent: 429 with a time to wait.
    QuotaSpent,
    /// Another client on this address makes calls without a limit.
    Stranger,
}

#[derive(Debug)]
pub(crate) struct Script {
    rng: Rng,
    faults: Vec<(Duration, Fault, Duration)>,
    length: Duration,
    latest: Latest,
}

/// The faults that were played.
#[derive(Debug, Default)]
pub(crate) struct Played {
    /// Seconds with a fault in them, or with its consequences.
    touched: Vec<Range<u64>>,
    /// Seconds with a stranger in them.
    strangers: Vec<Range<u64>>,
    count: BTreeMap<Fault, u64>,
    outage: Duration,
}

// === impl Fault ===

impl Fault {
    /// Returns the time after its end in which its consequences last.
    fn recovery(self) -> Duration {
        Duration::from_secs(match self {
            // Its refusals lower the limit, which takes half an hour to rise again.
            Self::Stranger => 1_800,
            _ => 45,
        })
    }
}

// === impl Script ===

impl Script {
    /// Returns a fault every two to four minutes, and a stranger every six hours.
    pub(crate) fn new(seed: u64, length: Duration, latest: Latest) -> Self {
        let mut rng = Rng::with_seed(seed);
        let (mut faults, mut at) = (Vec::new(), Duration::from_secs(60));
        let mut strangers = Duration::from_secs(50 * 60);
        while at + Duration::from_secs(120) < length {
            let fault = if at >= strangers {
                strangers += Duration::from_secs(6 * 3_600);
                Fault::Stranger
            } else {
                ORDINARY[rng.usize(..ORDINARY.len())]
            };
            let length = Duration::from_secs(rng.u64(5..40));
            faults.push((at, fault, length));
            at += length + fault.recovery() + Duration::from_secs(rng.u64(60..180));
        }
        Self {
            rng,
            faults,
            length,
            latest,
        }
    }

    pub(crate) async fn play(mut self, sim: Sim, secret: Secret) -> Played {
        let start = Instant::now();
        let mut played = Played::default();
        sim.set_faults(calm());
        for (at, fault, length) in std::mem::take(&mut self.faults) {
            sleep_until(start + at).await;
            *self.latest.lock().expect("no panic") = Some(fault);
            self.one(&sim, &secret, fault, length).await;
            sim.set_faults(calm());
            played.add(fault, start, at, length);
            sleep(fault.recovery()).await;
            *self.latest.lock().expect("no panic") = None;
        }
        sleep_until(start + self.length).await;
        played
    }

    async fn one(&mut self, sim: &Sim, secret: &Secret, fault: Fault, length: Duration) {
        let mut faults = calm();
        let down = ["down", "503", "slow:20s", "html"];
        let down = down[self.rng.usize(..down.len())];
        let data: &[&str] = match fault {
            Fault::Unavailable => &["503:20@0.05", "500@0.05"],
            Fault::Resets => &["reset-head@0.05", "reset-body@0.05"],
            Fault::Truncated => &["truncate@0.05"],
            Fault::SlowBodies => &["stall:2s@0.05"],
            _ => &[],
        };
        let data = data.iter().map(|text| text.parse().expect("a fault"));
        faults.data.extend(data);
        if matches!(fault, Fault::TokenEndpoint | Fault::RevokedInOutage) {
            faults.token.push(down.parse().expect("a fault"));
        }
        match fault {
            Fault::Revoked => sim.revoke_all(),
            Fault::RevokedInOutage => {
                sim.set_faults(faults.clone());
                sim.revoke_all();
            }
            Fault::SecretRotated => {
                let key = sim.rotate_secret(sim.client_id()).expect("a key");
                *secret.lock().expect("no panic") = key.client_secret.to_string();
                sim.revoke_all();
            }
            Fault::Stalls => {
                faults.before_head = Delay::Stall {
                    every: Duration::from_secs(8),
                    length: Duration::from_millis(self.rng.u64(300..3_000)),
                };
            }
            Fault::QuotaSpent => sim.set_quota(Some(Quota::new(200, Duration::from_secs(20)))),
            _ => {}
        }
        sim.set_faults(faults);
        if fault == Fault::Stranger {
            strange(sim, length).await;
        } else {
            sleep(length).await;
        }
        sim.set_quota(None);
    }
}

/// Makes thirty calls a second past the client, from the same address.
async fn strange(sim: &Sim, length: Duration) {
    let token = sim.token(sim.client_id()).expect("a token");
    let mut ticks = interval(Duration::from_millis(33));
    let end = Instant::now() + length;
    while Instant::now() < end {
        ticks.tick().await;
        let request = Request::get(format!("{URL}/v1/live/bus"))
            .header("authorization", format!("Bearer {token}"))
            .body(Full::<bytes::Bytes>::default());
        let answer = sim.clone().oneshot(request.expect("a request")).await;
        let body = answer.expect("an answer").into_body();
        body.collect().await.ok();
    }
}

/// Returns a quick network.
fn calm() -> Faults {
    let mut faults = Faults::default();
    let (min, max) = (Duration::from_millis(2), Duration::from_millis(6));
    faults.before_counting = Delay::Uniform { min, max };
    faults.before_head = Delay::Uniform { min, max: max * 4 };
    faults
}

// === impl Played ===

impl Played {
    fn add(&mut self, fault: Fault, start: Instant, at: Duration, length: Duration) {
        let end = start.elapsed().as_secs();
        let recovery = fault.recovery().as_secs();
        self.touched.push(at.as_secs()..end + recovery);
        if fault == Fault::Stranger {
            self.strangers.push(at.as_secs()..end + 2);
        }
        if matches!(fault, Fault::TokenEndpoint | Fault::RevokedInOutage) {
            self.outage += length;
        }
        *self.count.entry(fault).or_default() += 1;
    }

    pub(crate) fn is_touched(&self, second: u64) -> bool {
        self.touched.iter().any(|range| range.contains(&second))
    }

    pub(crate) fn has_stranger(&self, second: u64) -> bool {
        self.strangers.iter().any(|range| range.contains(&second))
    }

    /// Returns the first token, one for each revocation, a refused one for each rotated secret, and
    /// the attempts of outages at their backoff.
    pub(crate) fn most_token_posts(&self) -> u64 {
        let outages = self.count(Fault::TokenEndpoint) + self.count(Fault::RevokedInOutage);
        let refused = self.count(Fault::SecretRotated);
        2 + self.revocations() + refused + 6 * outages + self.outage.as_secs() / 15
    }

    pub(crate) fn revocations(&self) -> u64 {
        let faults = [Fault::Revoked, Fault::RevokedInOutage, Fault::SecretRotated];
        faults.map(|fault| self.count(fault)).iter().sum()
    }

    fn count(&self, fault: Fault) -> u64 {
        self.count.get(&fault).copied().unwrap_or_default()
    }
}

impl fmt::Display for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.count)
    }
}

const ORDINARY: [Fault; 10] = [
    Fault::TokenEndpoint,
    Fault::Revoked,
    Fault::RevokedInOutage,
    Fault::SecretRotated,
    Fault::Unavailable,
    Fault::Resets,
    Fault::Truncated,
    Fault::Stalls,
    Fault::SlowBodies,
    Fault::QuotaSpent,
];
