//! Members of a fleet through real gateways: what nginx and HAProxy wrote into their logs is the judge, as of
//! one process in the tests of `tower-tds`, which these are run by. Calm, and with every fault of the store and of processes.
//!
//! `cargo test --release -p tower-tds-fleet --test gateways -- --nocapture` prints how fast it went.
#![expect(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "an overflow in a test is a failed test"
)]
#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]
#![expect(dead_code, reason = "the other tests use more of it")]

#[path = "../../tower-tds/tests/gateways/gateway.rs"]
mod gateway;
#[path = "../../tower-tds/tests/gateways/haproxy.rs"]
mod haproxy;
#[path = "support/known.rs"]
mod known;
#[path = "../../tower-tds/tests/gateways/load.rs"]
mod load;
#[path = "../../tower-tds/tests/gateways/log.rs"]
mod log;
#[path = "../../tower-tds/tests/gateways/nginx.rs"]
mod nginx;
#[path = "support/process.rs"]
mod process;
#[path = "../../tower-tds/tests/gateways/program.rs"]
mod program;
#[path = "support/redis_server.rs"]
mod redis_server;
#[path = "../../tower-tds/tests/gateways/scenario.rs"]
mod scenario;
#[path = "../../tower-tds/tests/gateways/stranger.rs"]
mod stranger;

#[path = "gateways/table.rs"]
mod table;

use std::{
    net::SocketAddr,
    num::NonZeroU32,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use redis_server::RedisServer;
use tds_sim::Server;
use tokio::time::sleep;
use tower::{Service, ServiceExt};
use tower_tds::{Client, Credentials, Error, Limits, RequestBody, ResponseBody, SharedLimits};
use tower_tds_fleet::Fleet;
use tower_tds_limits::{Burst, Rules};

use self::{
    gateway::Kind,
    load::Load,
    process::Process,
    scenario::{STALLS, Scenario, Way},
};

/// Members that are called in turn.
#[derive(Clone)]
struct Members {
    clients: Arc<[Client]>,
    next: Arc<AtomicUsize>,
}

impl Members {
    fn new(
        store: &RedisServer,
        members: u32,
        limits: &Limits,
        service: &Server,
        front: SocketAddr,
    ) -> Self {
        // One of the sockets of each is for its tokens, which come from elsewhere.
        let sockets = NonZeroU32::new(60 / members + 1).expect("some");
        let limits = limits.clone().connections(sockets);
        let member = |_| {
            let id = Credentials::new(service.client_id(), service.client_secret());
            let fleet = Fleet::join(&store.url(), "gate", &limits).expect("a store");
            Client::builder(
                service.auth_url(),
                &format!("http://{front}"),
                id.expect("plain"),
            )
            .loopback_http()
            .limits(SharedLimits::leased(limits.clone(), fleet))
            .build()
            .expect("loopback is let through")
        };
        Self {
            clients: (0..members).map(member).collect(),
            next: Arc::default(),
        }
    }
}

impl Service<Request<RequestBody>> for Members {
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let turn = self.next.fetch_add(1, Relaxed) % self.clients.len();
        let client = self.clients.get(turn).expect("it is there").clone();
        Box::pin(client.oneshot(request))
    }
}

async fn refuses_nothing(gateway: Kind, limits: Limits, all: &[u32], ways: [Way; 2], calls: u32) {
    for &members in all {
        let Some(store) = RedisServer::start() else {
            return;
        };
        known::known(&store, "gate", &limits).await;
        for way in ways {
            let scenario = Scenario {
                gateway,
                load: Load::Small,
                way,
                calls,
            };
            let client =
                |service: &Server, front| Members::new(&store, members, &limits, service, front);
            let Some(seen) = scenario.run_with(client).await else {
                return;
            };
            program::say(&format!("by {members} members"));
            seen.assert_nothing_refused();
            // On a machine that is busy with other things too, a third is still far from a standstill.
            assert!(seen.utilisation() > 0.33, "{members}: {seen}");
        }
    }
}

async fn refuses_nothing_briefly(gateway: Kind) {
    let ways = [Way::Calm, Way::Lognormal];
    refuses_nothing(gateway, Limits::default(), &[1, 4, 16], ways, 300).await;
}

#[tokio::test]
async fn nginx_with_a_burst_of_10_refuses_no_member() {
    refuses_nothing_briefly(Kind::Nginx { burst: 10 }).await;
}

#[tokio::test]
async fn haproxy_refuses_no_member() {
    refuses_nothing_briefly(Kind::Haproxy).await;
}

/// For .3 s and for 2 s now and then:
/// `cargo test --release -p tower-tds-fleet --test gateways stands_still -- --ignored --nocapture --test-threads 1`
async fn refuses_nothing_through_stalls(gateway: Kind, rules: Rules) {
    let limits = Limits::default().rules(rules);
    let ways = [STALLS, Way::Stalls("stall:9700ms:2s")];
    refuses_nothing(gateway, limits, &[1, 4, 16], ways, 1_000).await;
}

#[tokio::test]
#[ignore = "three minutes"]
async fn nginx_refuses_no_member_where_the_network_stands_still() {
    let rules = Rules::default().bucket(Burst::Of(10));
    refuses_nothing_through_stalls(Kind::Nginx { burst: 10 }, rules).await;
}

#[tokio::test]
#[ignore = "three minutes"]
async fn haproxy_refuses_no_member_where_the_network_stands_still() {
    refuses_nothing_through_stalls(Kind::Haproxy, Rules::default()).await;
}

/// Of the processes: what is lost is lost soon, and a store without memory is waited for 13 s.
fn limits() -> Limits {
    let sockets = NonZeroU32::new(15).expect("some");
    let lost = Duration::from_millis(500);
    Limits::default().connections(sockets).lost_after(lost)
}

/// Three processes that always have work, while their store hangs, is restarted and forgets, and they are stopped and killed.
async fn refuses_nothing_in_trouble(gateway: Kind) {
    let Some(mut store) = RedisServer::start() else {
        return;
    };
    let Some((service, gateway)) = gateway.start().await else {
        return;
    };
    known::known(&store, "test", &limits()).await;
    let data = format!("http://{}", gateway.address());
    let mut processes: Vec<_> = (0..3)
        .map(|_| Process::start(&store, &service, &data))
        .collect();
    let seconds = |seconds| sleep(Duration::from_secs(seconds));
    seconds(5).await;
    store.hang();
    seconds(3).await;
    store.go_on();
    seconds(3).await;
    store.kill();
    store.restart();
    // All that was granted before is over, and calls go on.
    seconds(16).await;
    redis::cmd("FLUSHALL")
        .exec(&mut store.connection())
        .expect("it does");
    seconds(16).await;
    for (process, time) in processes.iter().zip([1, 4, 8]) {
        process.signal("-STOP");
        seconds(time).await;
        process.signal("-CONT");
        seconds(1).await;
    }
    for _ in 0..3 {
        processes.remove(0);
        processes.push(Process::start(&store, &service, &data));
        seconds(2).await;
    }
    drop(processes);
    let log = gateway.log(0).await;
    let figures = format!(
        "in trouble: {} x 200, {} x 423, {} x 416, at most {:.2} in any alignment, {} sockets",
        log.count(200),
        log.count(423),
        log.count(416),
        log.largest_estimate(),
        log.most_sockets(),
    );
    program::say(&figures);
    assert_eq!(log.count(423) + log.count(416), 0, "{figures}");
    assert!(log.largest_estimate() <= 50.0, "{figures}");
    // A third of what there is outside the waits, of 45 s.
    assert!(log.count(200) >= 600, "{figures}");
}

#[tokio::test]
async fn nginx_refuses_no_process_in_trouble() {
    refuses_nothing_in_trouble(Kind::Nginx { burst: 10 }).await;
}

#[tokio::test]
async fn haproxy_refuses_no_process_in_trouble() {
    refuses_nothing_in_trouble(Kind::Haproxy).await;
}
