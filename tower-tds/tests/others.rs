//! Callers beside slow or lost calls, over sockets: by what the service saw.

#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]
#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]

use std::{sync::Arc, time::Duration};

use http::Request;
use http_body_util::BodyExt;
use tds_sim::{Config, DataFault, Faults, Scripted, Server, When};
use tokio::{sync::RwLock, task::JoinSet, time::sleep};
use tower::ServiceExt;
use tower_tds::{Client, Credentials, RequestBody};

/// A simulated service, and those who call it.
struct Called {
    server: Arc<Server>,
    client: Client,
    calls: JoinSet<()>,
    /// Held by each caller while it asks; whoever writes has them wait before their next call.
    gate: Arc<RwLock<()>>,
}

// === impl Called ===

impl Called {
    /// So many call without a pause, and are answered after this time.
    async fn by(callers: usize, answered_after: Duration) -> Self {
        let server = Server::start(Config::default()).await;
        let server = Arc::new(server.expect("loopback has free ports"));
        server.sim().set_faults(slow(answered_after));
        let credentials = Credentials::new(server.client_id(), server.client_secret());
        let credentials = credentials.expect("the simulator's are usable");
        let client = Client::builder(server.auth_url(), server.base_url(), credentials)
            .loopback_http()
            .build()
            .expect("loopback is let through");
        let mut called = Self {
            server,
            client,
            calls: JoinSet::new(),
            gate: Arc::default(),
        };
        for _ in 0..callers {
            let (gate, client) = (Arc::clone(&called.gate), called.client.clone());
            let url = called.url("quick");
            called.calls.spawn(async move {
                loop {
                    drop(gate.read().await);
                    get(client.clone(), url.clone()).await;
                }
            });
        }
        called
    }

    fn url(&self, who: &str) -> String {
        format!("{}/v1/live/bus?by={who}", self.server.base_url())
    }

    /// When those who call like this came, since the server's start.
    fn arrivals(&self, who: &str) -> Vec<Duration> {
        let all = self.server.ledger().arrivals().into_iter();
        let like = all.filter(|arrival| arrival.target.ends_with(who));
        like.map(|arrival| arrival.at).collect()
    }

    /// How many quick calls came in each full second after `begin`.
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

    /// Makes ten calls that are answered after this time, while the others wait for their turn.
    async fn ten_slow(&mut self, answered_after: Duration, usual: Duration) -> Duration {
        let gate = Arc::clone(&self.gate);
        let others_wait = gate.write().await;
        // Whatever is in flight is answered.
        sleep(usual * 3).await;
        self.server.sim().set_faults(slow(answered_after));
        for _ in 0..10 {
            let call = get(self.client.clone(), self.url("slow"));
            self.calls.spawn(call);
        }
        while self.arrivals("slow").len() < 10 {
            sleep(Duration::from_millis(10)).await;
        }
        self.server.sim().set_faults(slow(usual));
        drop(others_wait);
        self.arrivals("slow")
            .into_iter()
            .max()
            .expect("there are ten")
    }
}

fn slow(answered_after: Duration) -> Faults {
    let mut faults = Faults::default();
    let text = format!("{}ms", answered_after.as_millis());
    faults.before_head = text.parse().expect("a fixed delay");
    faults
}

/// Whatever it comes to: the ledger has what counts.
async fn get(client: Client, url: String) {
    let request = Request::get(url).body(RequestBody::default());
    let response = client.oneshot(request.expect("a request")).await;
    if let Ok(response) = response {
        drop(response.into_body().collect().await);
    }
}

/// Ten heads that come after so long: the others have half of the rate from the second second on.
async fn beside_ten_heads(after: Duration) {
    let usual = Duration::from_millis(80);
    let mut called = Called::by(10, usual).await;
    sleep(Duration::from_secs(2)).await;
    let begin = called.ten_slow(after, usual).await;
    sleep(Duration::from_secs(9)).await;
    let seconds = called.by_second(begin, 8);
    assert!(seconds.iter().skip(1).all(|n| *n >= 25), "{seconds:?}");
    let refused = called
        .server
        .ledger()
        .summary()
        .by_status
        .get(&423)
        .copied();
    assert_eq!(refused.unwrap_or_default(), 0);
}

#[tokio::test]
async fn ten_slow_heads_leave_the_others_half_of_the_rate_from_the_second_second_on() {
    beside_ten_heads(Duration::from_secs(12)).await;
}

#[tokio::test]
async fn ten_heads_that_never_come_leave_as_much() {
    beside_ten_heads(Duration::from_secs(3_600)).await;
}

#[tokio::test]
async fn connections_that_are_reset_for_a_moment_leave_what_the_window_leaves() {
    let usual = Duration::from_millis(50);
    let called = Called::by(30, usual).await;
    sleep(Duration::from_secs(2)).await;
    let mut faults = slow(usual);
    faults
        .data
        .push(Scripted::new(DataFault::ResetHead, When::Always));
    called.server.sim().set_faults(faults);
    sleep(Duration::from_millis(400)).await;
    called.server.sim().set_faults(slow(usual));
    let last = called.arrivals("quick").into_iter().max();
    let begin = last.expect("there were some") + Duration::from_secs(2);
    sleep(Duration::from_secs(9)).await;
    let seconds = called.by_second(begin, 6);
    assert!(seconds.iter().all(|n| *n >= 15), "{seconds:?}");
}
