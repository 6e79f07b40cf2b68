//! Members of a fleet over a real store, and what the service sees of them.
#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]
#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

#[path = "support/redis_server.rs"]
mod redis_server;

use std::{num::NonZeroU32, time::Duration};

use http::Request;
use http_body_util::BodyExt;
use redis_server::RedisServer;
use tds_sim::{Config, Rule, Server};
use tokio::{task::JoinSet, time::sleep};
use tower::ServiceExt;
use tower_tds::{Client, Credentials, Error, Limits, RequestBody, SharedLimits};
use tower_tds_fleet::Fleet;
use tower_tds_limits::{AskLease, Leases};

fn limits(sockets: u32) -> Limits {
    Limits::default().connections(NonZeroU32::new(sockets).expect("some"))
}

fn member(store: &RedisServer, server: &Server, limits: Limits) -> (Client, Fleet) {
    let fleet = Fleet::join(&store.url(), "test", &limits).expect("a store");
    let credentials =
        Credentials::new(server.client_id(), server.client_secret()).expect("it can be sent");
    let client = Client::builder(server.auth_url(), server.base_url(), credentials)
        .loopback_http()
        .limits(SharedLimits::leased(limits, fleet.clone()))
        .build()
        .expect("loopback is let through");
    (client, fleet)
}

async fn get(client: Client, url: String) -> Result<(), Error> {
    let request = Request::get(url)
        .body(RequestBody::default())
        .expect("a request");
    let response = client.oneshot(request).await?;
    response.into_body().collect().await?;
    Ok(())
}

/// A store that knows that nothing was granted before it came.
async fn known(store: &RedisServer, limits: &Limits) {
    let fleet = Fleet::join(&store.url(), "test", limits).expect("a store");
    let mut ask = AskLease::default();
    ask.max_wait = Some(Duration::ZERO);
    let refused = fleet.lease(ask).await.expect_err("it grants nothing yet");
    assert!(
        refused.retry_after() > Some(Duration::from_secs(30)),
        "{refused}"
    );
    let mut connection = store.connection();
    let script = "local s = cmsgpack.unpack(redis.call('GET', KEYS[1])) s.opens = 0 \
                  redis.call('SET', KEYS[1], cmsgpack.pack(s))";
    let mut eval = redis::cmd("EVAL");
    let known = eval
        .arg(script)
        .arg(1)
        .arg("{test}:quota")
        .query::<()>(&mut connection);
    known.expect("it is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_members_are_never_refused() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    let mut config = Config::default();
    config.rule = Rule::SlidingCounter;
    let server = Server::start(config).await.expect("a server");
    let url = format!("{}/v1/live/bus", server.base_url());
    known(&store, &Limits::default()).await;
    let mut calls = JoinSet::new();
    let members: Vec<_> = (0..4)
        .map(|_| member(&store, &server, limits(15)))
        .collect();
    for (client, _) in &members {
        for _ in 0..50 {
            calls.spawn(get(client.clone(), url.clone()));
        }
    }
    while let Some(called) = calls.join_next().await {
        called.expect("no panic").expect("an answer");
    }
    let seen = server.ledger().summary();
    eprintln!("{:?} {:?}", seen, members[0].1.status());
    sleep(Duration::from_millis(1)).await;
}
