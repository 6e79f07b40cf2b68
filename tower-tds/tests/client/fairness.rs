//! Other callers beside slow or lost calls, over sockets, as the service saw them.

use std::{future::Future, sync::Arc, time::Duration};

use http::Request;
use http_body_util::BodyExt;
use tds_sim::{Config, DataFault, Faults, Scripted, Server, When};
use tokio::{task::JoinSet, time::sleep};
use tower::ServiceExt;
use tower_tds::{Client, RequestBody};

use crate::sim;

/// A simulated service and its callers.
struct Called {
    server: Arc<Server>,
    client: Client,
    calls: JoinSet<()>,
}

// === impl Called ===

impl Called {
    /// Starts the service with `faults`, and `callers` tasks that call it without a pause.
    async fn by(callers: usize, faults: Faults) -> Self {
        let server = Arc::new(sim::start(Config::default()).await);
        server.sim().set_faults(faults);
        let client = sim::client(&server);
        let mut called = Self {
            server,
            client,
            calls: JoinSet::new(),
        };
        for _ in 0..callers {
            let (client, url) = (called.client.clone(), called.url("quick"));
            called.calls.spawn(async move {
                loop {
                    get(client.clone(), url.clone()).await;
                }
            });
        }
        called
    }

    fn url(&self, who: &str) -> String {
        format!("{}/v1/live/bus?by={who}", self.server.base_url())
    }

    /// The arrivals of calls with `by={who}`, since the server's start.
    fn arrivals(&self, who: &str) -> Vec<Duration> {
        let all = self.server.ledger().arrivals().into_iter();
        let like = all.filter(|arrival| arrival.target.ends_with(who));
        like.map(|arrival| arrival.at).collect()
    }

    /// The number of quick calls in each full second after `begin`.
    fn by_second(&self, begin: Duration, seconds: u64) -> Vec<usize> {
        let quick = self.arrivals("quick");
        let of = |second: u64| {
            let from = begin + Duration::from_secs(second);
            let until = from + Duration::from_secs(1);
            quick
                .iter()
                .filter(|at| (from..until).contains(*at))
                .count()
        };
        (0..seconds).map(of).collect()
    }

    /// Makes ten slow calls. Returns the arrival of the last.
    async fn ten_slow(&mut self) -> Duration {
        for _ in 0..10 {
            let call = get(self.client.clone(), self.url("slow"));
            self.calls.spawn(call);
        }
        while self.arrivals("slow").len() < 10 {
            sleep(Duration::from_millis(10)).await;
        }
        let last = self.arrivals("slow").into_iter().max();
        last.expect("there are ten")
    }
}

fn slow(answered_after: &str) -> Faults {
    let mut faults = Faults::default();
    faults.before_head = answered_after.parse().expect("a fixed delay");
    faults
}

/// Ignores the result: the ledger has the counts.
async fn get(client: Client, url: String) {
    let request = Request::get(url).body(RequestBody::default());
    let response = client.oneshot(request.expect("a request")).await;
    if let Ok(response) = response {
        drop(response.into_body().collect().await);
    }
}

/// Whether one of three runs passes. On a machine that stalls for a second, no caller is served.
async fn one_of_three<F>(run: impl Fn() -> F, least: usize)
where
    F: Future<Output = Vec<usize>>,
{
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let seconds = run().await;
        if seconds.iter().all(|n| *n >= least) {
            return;
        }
        seen.push(seconds);
    }
    panic!("{seen:?}");
}

/// Ten response heads that arrive after `after`. The other callers have half of the rate from the
/// second second on, also when the heads arrive.
async fn beside_ten_heads(after: &str) -> Vec<usize> {
    let mut faults = slow("80ms");
    faults.before_head_of = Some((String::from("slow"), after.parse().expect("a fixed delay")));
    let mut called = Called::by(10, faults).await;
    sleep(Duration::from_secs(2)).await;
    let begin = called.ten_slow().await;
    sleep(Duration::from_secs(15)).await;
    let seconds = called.by_second(begin, 14);
    let ledger = called.server.ledger().summary();
    assert_eq!(ledger.by_status.get(&423), None);
    seconds.into_iter().skip(1).collect()
}

async fn after_resets() -> Vec<usize> {
    let called = Called::by(30, slow("50ms")).await;
    sleep(Duration::from_secs(2)).await;
    let mut faults = slow("50ms");
    faults
        .data
        .push(Scripted::new(DataFault::ResetHead, When::Always));
    called.server.sim().set_faults(faults);
    sleep(Duration::from_millis(400)).await;
    called.server.sim().set_faults(slow("50ms"));
    let last = called.arrivals("quick").into_iter().max();
    let begin = last.expect("there were some") + Duration::from_secs(2);
    sleep(Duration::from_secs(13)).await;
    // Each call during the resets is lost, and holds its own permit for eleven seconds.
    called.by_second(begin, 10)
}

/// All three at once, because each mostly waits.
#[tokio::test]
async fn slow_lost_or_reset_calls_leave_others_their_rate() {
    tokio::join!(
        one_of_three(|| beside_ten_heads("12s"), 25),
        one_of_three(|| beside_ten_heads("3600s"), 25),
        one_of_three(after_resets, 25),
    );
}
