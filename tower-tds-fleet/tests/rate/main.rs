//! Members of a fleet over a real store, and what the service sees of them.
#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]
#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

#[path = "../support/redis_server.rs"]
mod redis_server;

#[path = "../support/known.rs"]
mod known;

#[path = "../support/process.rs"]
mod process;

mod away;
mod counted;
mod faults;
mod heard;
mod nosy;
mod processes;

use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};

use http::Request;
use http_body_util::BodyExt;
use redis_server::RedisServer;
use tds_sim::{Config, Delay, Rule, Server};
use tokio::task::JoinSet;
use tower::ServiceExt;
use tower_tds::{Client, Credentials, Error, Limits, RequestBody, SharedLimits};
use tower_tds_fleet::{Fleet, WithoutStore};
use tower_tds_limits::{AskLease, Ended, Leases};

/// Nobody's memory is waited for long, and who is lost is lost soon.
const LOST: Duration = Duration::from_millis(500);

/// How long a store without memory grants nothing.
const RECOVERY: Duration = Duration::from_millis(10_000 + 2 * 1_000 + 1_002);

fn limits() -> Limits {
    let sockets = NonZeroU32::new(15).expect("some");
    Limits::default().connections(sockets).lost_after(LOST)
}

async fn service(rule: Rule, delay: Delay) -> Server {
    let mut config = Config::default();
    config.rule = rule;
    config.faults.before_counting = delay;
    config.faults.before_head = delay;
    Server::start(config).await.expect("a server")
}

fn quick() -> Delay {
    let (min, max) = (Duration::ZERO, Duration::from_millis(50));
    Delay::Uniform { min, max }
}

fn member(store: &RedisServer, server: &Server) -> (Client, Fleet) {
    member_with(store, server, WithoutStore::Closed)
}

fn member_with(store: &RedisServer, server: &Server, without: WithoutStore) -> (Client, Fleet) {
    member_at(&store.url(), server, without)
}

fn member_at(store: &str, server: &Server, without: WithoutStore) -> (Client, Fleet) {
    let limits = limits();
    let fleet = Fleet::join_with(store, "test", &limits, without).expect("a store");
    let id = Credentials::new(server.client_id(), server.client_secret());
    let client = Client::builder(server.auth_url(), server.base_url(), id.expect("plain"))
        .loopback_http()
        .limits(SharedLimits::leased(limits, fleet.clone()))
        .deadline(Duration::from_secs(60))
        .build()
        .expect("loopback is let through");
    (client, fleet)
}

fn join(store: &RedisServer) -> Fleet {
    Fleet::join(&store.url(), "test", &limits()).expect("a store")
}

async fn get(client: Client, url: String) -> Result<(), Error> {
    let request = Request::get(url)
        .body(RequestBody::default())
        .expect("a request");
    let response = client.oneshot(request).await?;
    response.into_body().collect().await?;
    Ok(())
}

/// So many calls of each, all at once, each of which is answered.
async fn all_answered(members: &[(Client, Fleet)], server: &Server, each: usize) {
    let mut calls = JoinSet::new();
    for (client, _) in members {
        for _ in 0..each {
            calls.spawn(get(client.clone(), bus(server)));
        }
    }
    while let Some(called) = calls.join_next().await {
        called.expect("no panic").expect("an answer");
    }
}

fn bus(server: &Server) -> String {
    format!("{}/v1/live/bus", server.base_url())
}

/// How many of each status the service has given.
fn statuses(server: &Server) -> BTreeMap<u16, u64> {
    server.ledger().summary().by_status
}

/// A store that knows that nothing was granted before it came.
async fn known(store: &RedisServer) {
    let wait = known::known(store, "test", &limits()).await;
    assert!(
        wait > RECOVERY - Duration::from_secs(5) && wait <= RECOVERY,
        "{wait:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_members_keep_one_quota() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    for rule in [
        Rule::SlidingCounter,
        Rule::SlidingLogAll,
        Rule::LeakyBucket { burst: 10 },
    ] {
        let server = service(rule, quick()).await;
        let members: Vec<_> = (0..4).map(|_| member(&store, &server)).collect();
        all_answered(&members, &server, 40).await;
        assert_eq!(statuses(&server), [(200, 160)].into(), "{rule:?}");
    }
}

#[tokio::test]
async fn members_with_other_limits_are_told_so() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let other = limits().rules(tower_tds_limits::Rules::window());
    let fleet = Fleet::join(&store.url(), "test", &other).expect("a store");
    let mut ask = AskLease::default();
    ask.max_wait = Some(Duration::from_secs(5));
    let error = fleet.lease(ask).await.expect_err("it keeps other limits");
    assert!(error.to_string().contains("other limits"), "{error}");
    // It asks again with growing pauses: 20 connections a second once.
    let mut info = redis::cmd("INFO");
    let stats = info.arg("stats").query::<String>(&mut store.connection());
    let stats = stats.expect("it answers");
    let connections = stats
        .lines()
        .find_map(|line| line.strip_prefix("total_connections_received:"));
    let connections: u32 = connections
        .expect("a number")
        .trim()
        .parse()
        .expect("a number");
    assert!(connections < 20, "{connections} in five seconds");
    for (url, name, text) in [
        ("http://127.0.0.1/", "test", "redis://"),
        ("redis://127.0.0.1/", "a fleet", "name"),
        ("redis://127.0.0.1/", "", "name"),
    ] {
        let error = Fleet::join(url, name, &other).expect_err(name);
        assert!(error.to_string().contains(text), "{error}");
    }
    let minute = tower_tds_limits::Quota::per_minute(NonZeroU32::MIN);
    let error = Fleet::join("redis://127.0.0.1/", "test", &limits().also(minute));
    assert!(
        error
            .expect_err("two quotas")
            .to_string()
            .contains("one quota")
    );
}

/// What is documented, and nothing else; two members, so that one has to be told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_that_the_documentation_names_are_enough() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let named = include_str!("../../README.md").split('`');
    let mut named = named
        .filter(|text| text.starts_with("~{buses}:quota"))
        .map(|text| text.replace("buses", "test"));
    let rights = named.next().expect("it is named");
    let mut user = redis::cmd("ACL");
    let user = user.arg(&["SETUSER", "member", "on", ">password", "resetchannels"]);
    let user = user.arg(rights.split(' ').collect::<Vec<_>>());
    user.exec(&mut store.connection()).expect("it is a user");
    let url = format!("{}?user=member&pass=password", store.url());
    let members = [(); 2].map(|()| Fleet::join(&url, "test", &limits()).expect("a store"));
    let mut ask = AskLease::default();
    ask.max_wait = Some(Duration::from_secs(10));
    let mut waits = JoinSet::new();
    for fleet in members.iter().cycle().take(30) {
        waits.spawn(fleet.lease(ask));
    }
    while let Some(lease) = waits.join_next().await {
        lease.expect("no panic").expect("a lease");
    }
}

/// What the store keeps of the members' shares: five numbers each.
fn shares(store: &RedisServer) -> usize {
    let mut length = redis::cmd("HSTRLEN");
    let length = length.arg("{test}:quota").arg("shares");
    let bytes: usize = length.query(&mut store.connection()).expect("a hash");
    bytes / 40
}

#[tokio::test]
async fn who_leaves_gives_its_leases_and_its_share_back_at_once() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let share_of = |share| WithoutStore::Share(NonZeroU32::new(share).expect("some"));
    let fleet = Fleet::join_with(&store.url(), "test", &limits(), share_of(25)).expect("a store");
    let lease = fleet.lease(AskLease::default()).await.expect("a lease");
    assert!(fleet.status().has_share);
    assert_eq!(shares(&store), 1);
    let error = Fleet::join_with(&store.url(), "test", &limits(), share_of(26));
    assert!(
        error
            .expect_err("more than half")
            .to_string()
            .contains("half")
    );
    // Too much together with the other one.
    let second = Fleet::join_with(&store.url(), "test", &limits(), share_of(1)).expect("a store");
    second.ready().await.expect("it grants");
    assert_eq!((second.status().has_share, shares(&store)), (false, 1));
    second.leave().await;
    let mut leaving = tokio_test::task::spawn(fleet.leave());
    assert!(leaving.poll().is_pending());
    let error = fleet.lease(AskLease::default()).await;
    let error = error.expect_err("it leaves").to_string();
    assert!(error.contains("left the fleet"), "{error}");
    // What is under way still has its lease.
    assert_eq!((fleet.status().held, shares(&store)), (1, 1));
    lease.end(Ended::Unsent);
    leaving.await;
    assert_eq!(shares(&store), 0);
    // All of the quota is another's.
    let other = join(&store);
    let mut ask = AskLease::default();
    ask.max_wait = Some(Duration::ZERO);
    let one = other.lease(ask).await.expect("one");
    one.end(Ended::Unsent);
    other.idle().await;
    assert_eq!(other.status().live, 0);
    // Who has left has left.
    fleet.leave().await;
}

#[tokio::test]
async fn a_fleet_is_ready_when_its_store_grants_and_idle_when_that_knows_all() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    let fleet = join(&store);
    let began = tokio::time::Instant::now();
    fleet.ready().await.expect("it grants in the end");
    // As soon as it has a memory, and not before.
    assert!(began.elapsed() > RECOVERY - Duration::from_secs(1));
    fleet.idle().await;
    let status = fleet.status();
    assert_eq!((status.live, status.held, status.waiting), (0, 0, 0));
    assert_eq!((status.away, status.opens_in), (None, Duration::ZERO));
}
