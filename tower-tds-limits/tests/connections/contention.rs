//! Another client behind the same address, at gateways that count connections in two ways.

use std::{env, sync::Arc, time::Duration};

use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use tokio::{task::JoinSet, time::sleep};
use tower::{Service, ServiceExt};
use tower_tds_limits::{Limiter, RequestLimit};

use crate::connections::{
    limited,
    net::{Net, NetClient, net_client, warm},
    no_quota,
    server::Allows,
};

/// Makes a call, and again if it is refused, as a retry layer does. Returns whether it was
/// answered.
async fn call(mut service: RequestLimit<NetClient>, uri: Uri) -> bool {
    let mut backoff = Duration::from_millis(500);
    for _ in 0..4 {
        let request = Request::get(uri.clone()).body(Empty::new());
        let ready = service.ready().await.expect("it is always ready");
        let response = ready.call(request.expect("a request")).await;
        let response = response.expect("an answer");
        let status = response.status();
        response.into_body().collect().await.expect("a body");
        if status != StatusCode::RANGE_NOT_SATISFIABLE {
            return true;
        }
        sleep(backoff.mul_f64(0.5 + fastrand::f64())).await;
        backoff *= 2;
    }
    false
}

/// A gateway that counts in this way, and a client with the contract's limits.
struct Run {
    net: Net,
    service: RequestLimit<NetClient>,
    client: NetClient,
}

// === impl Run ===

impl Run {
    fn new(allows: Allows) -> Self {
        let net = Net::of(["a"]);
        net.server("a").allow(allows);
        // Only connections are scarce.
        let limiter = Limiter::new(no_quota());
        let client = net_client(&net, &limiter);
        let service = limited(&limiter, client.clone());
        Self {
            net,
            service,
            client,
        }
    }

    /// Makes calls on this many tasks for this long. Returns how many were lost.
    async fn drive(&self, loops: u32, path: &str, gap: Duration, lasts: Duration) -> usize {
        let uri = self.net.server("a").at(path);
        let until = tokio::time::Instant::now() + lasts;
        let mut calls = JoinSet::new();
        for _ in 0..loops {
            let (service, uri) = (self.service.clone(), uri.clone());
            calls.spawn(async move {
                sleep(Duration::from_millis(fastrand::u64(0..500))).await;
                let mut lost = 0;
                while tokio::time::Instant::now() < until {
                    if !call(service.clone(), uri.clone()).await {
                        lost += 1;
                    }
                    sleep(gap).await;
                }
                lost
            });
        }
        calls.join_all().await.into_iter().sum()
    }
}

#[tokio::test(start_paused = true)]
async fn second_client_for_six_seconds_causes_at_most_twelve_refusals() {
    for (seed, allows) in seeds() {
        let run = Arc::new(Run::new(allows));
        let server = run.net.server("a");
        warm(&run.client, server, 59).await;
        sleep(Duration::from_secs(5)).await;
        server.visit(10);
        let visit = async {
            sleep(Duration::from_secs(6)).await;
            run.net.server("a").visit(0);
        };
        let gap = Duration::from_millis(200);
        let calls = run.drive(10, "/slow", gap, Duration::from_secs(12));
        let (lost, ()) = tokio::join!(calls, visit);
        let refused = server.refused();
        assert!(refused <= 12, "{allows:?}, seed {seed}: {refused}");
        assert_eq!(lost, 0, "{allows:?}, seed {seed}");
    }
}

/// Both ways of counting, for each seed. Set `CONTENTION_SEEDS` for more seeds than one.
fn seeds() -> impl Iterator<Item = (u64, Allows)> {
    let seeds = env::var("CONTENTION_SEEDS").ok();
    let seeds = seeds.map_or(1, |seeds| seeds.parse().expect("a number"));
    let ways = |seed| [(seed, Allows::Open), (seed, Allows::InProcess)];
    // All of a test is random on its own thread.
    let seeded = |case: &(u64, Allows)| fastrand::seed(case.0);
    (0..seeds).flat_map(ways).inspect(seeded)
}
