//! The operators' page: rights, faults by their remedy, the table, the compose file.

use std::{convert::Infallible, mem::discriminant, num::NonZeroU32, time::Duration};

use http::{Request, Response};
use redis::{Client, cmd};
use tds_sim::Rule;
use tokio::time::{sleep, timeout};
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_tds::{Limits, Quota};
use tower_tds_fleet::{Fleet, FleetError, FleetStatus, Store};
use tower_tds_limits::{Limiter, RequestLimitLayer};

use crate::shares::{
    ANYWHERE, HANGS, Member, RedisServer, assert_clean, on_a_port, or_skip, reaches, remember, run,
    stage,
};

/// Joins a fleet in this store, which has this fault.
pub(crate) async fn fails(store: impl Into<Store>, fault: fn(String) -> FleetError) {
    let limiter = Limiter::new(Limits::default());
    let fleet = Fleet::join(store, "test", ANYWHERE, &limiter).unwrap();
    let ready = timeout(HANGS, fleet.ready()).await;
    let error = ready.unwrap().unwrap_err();
    println!("{error}");
    assert_eq!(discriminant(&error), discriminant(&fault(String::new())));
}

/// Joins and leaves a fleet in this store, without a fault.
pub(crate) async fn fits(store: impl Into<Store>) {
    let limiter = Limiter::new(Limits::default());
    let fleet = Fleet::join(store, "test", ANYWHERE, &limiter).unwrap();
    fleet.ready().await.unwrap();
    fleet.leave().await;
    assert_eq!(fleet.status().fault, None);
}

/// Reproducer for F1 and F5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_names_the_fault() {
    let (store, address) = or_skip!(on_a_port());
    let plain = or_skip!(RedisServer::start());
    let open = |url: String| Client::open(url).unwrap();
    // There is no server on the port, because the kernel never assigns it, or the host is unknown.
    let unreachable = |url: String| fails(open(url), FleetError::Unreachable);
    tokio::join!(
        unreachable("redis://127.0.0.1:1".to_owned()),
        unreachable("redis://no-such-host.invalid:6379".to_owned()),
        // The server has no TLS.
        unreachable(format!("rediss://{address}")),
    );
    // One user has a wrong password, and one lacks a right.
    let user = ["SETUSER", "member", "on", ">right", "~*", "+@all", "-hset"];
    run(&store, "ACL", &user);
    let with = |password: &str| open(format!("redis://member:{password}@{address}"));
    fails(with("wrong"), FleetError::Credentials).await;
    fails(with("right"), FleetError::MissingRight).await;
    // One server has reached its memory limit, and one is a replica.
    run(&store, "CONFIG", &["SET", "maxmemory", "1"]);
    fails(store.client(), FleetError::OutOfMemory).await;
    run(&store, "CONFIG", &["SET", "maxmemory", "0"]);
    let (host, port) = address.split_once(':').unwrap();
    run(&plain, "REPLICAOF", &[host, port]);
    fails(plain.client(), FleetError::ReadOnly).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_with_other_quotas_is_refused_and_the_first_continues() {
    let store = or_skip!(RedisServer::start());
    remember(&store);
    let one = Limiter::new(Limits::default());
    let first = Fleet::join(store.client(), "test", ANYWHERE, &one).unwrap();
    first.ready().await.unwrap();
    let quota = Quota::new(NonZeroU32::MIN, Duration::from_secs(60)).expect("a minute");
    let other = Limiter::new(Limits::default().also(quota));
    let second = Fleet::join(store.client(), "test", ANYWHERE, &other).unwrap();
    let error = second.ready().await.unwrap_err();
    assert!(matches!(error, FleetError::OtherQuotas(_)), "{error}");
    first.ready().await.unwrap();
    let long = Quota::new(NonZeroU32::MIN, Duration::from_secs(61)).unwrap();
    for (name, limits) in [("a fleet", Limits::default()), ("test", Limits::new(long))] {
        let error = Fleet::join(store.client(), name, ANYWHERE, &Limiter::new(limits)).unwrap_err();
        assert!(matches!(error, FleetError::Settings(_)), "{error}");
    }
}

/// Two services with the same limits, whose operators chose the same name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_of_another_service_is_refused_and_the_first_notices_nothing() {
    let store = or_skip!(RedisServer::start());
    remember(&store);
    let limiter = || Limiter::new(Limits::default());
    let join = |service: &str| Fleet::join(store.client(), "test", service, &limiter()).unwrap();
    let first = join("https://data.example.org/v1");
    first.ready().await.unwrap();
    let share = first.status().share;
    let others = [
        "http://data.example.org",
        "https://other.example.org",
        "https://data.example.org:8443",
    ];
    for other in others {
        let error = join(other).ready().await.unwrap_err();
        let FleetError::OtherService(said) = &error else {
            panic!("{other}: {error}");
        };
        assert!(said.contains("https://data.example.org:443"), "{said}");
    }
    assert_eq!(first.status().members, 1);
    assert_eq!(first.status().share, share);
    // The same one, written otherwise.
    let second = join("HTTPS://Data.Example.Org:443");
    second.ready().await.unwrap();
    first.leave().await;
    second.leave().await;
    // The members that called the first service have left.
    join("https://other.example.org").ready().await.unwrap();
    let error = Fleet::join(store.client(), "test", "data.example.org", &limiter()).unwrap_err();
    assert!(matches!(error, FleetError::Settings(_)), "{error}");
}

/// Reproducer for F1: the error of a call names the store's fault, whether its deadline or a full queue ends its wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_calls_name_the_fault_of_the_store() {
    let (mut store, server) = or_skip!(stage(Rule::SlidingLog).await);
    let member = Member::join(store.client(), &server, Limits::default());
    member.get().await.unwrap();
    store.kill();
    sleep(Duration::from_secs(6)).await;
    let by_deadline = member.get().deadline(Duration::from_secs(4));
    let by_deadline = by_deadline.await.unwrap_err();
    let bounded = RequestLimitLayer::new(member.client.limiter().clone()).max_waiting(0);
    let bounded = bounded.layer(service_fn(async |_: Request<String>| {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let by_queue = bounded
        .oneshot(Request::new(String::new()))
        .await
        .unwrap_err();
    let errors: [&dyn std::error::Error; 2] = [&by_deadline, &by_queue];
    for error in errors {
        let chain = std::iter::successors(Some(error), |it| it.source());
        let text: Vec<_> = chain.map(ToString::to_string).collect();
        let text = text.join(": ");
        assert!(text.contains("the store is unreachable"), "{text}");
    }
}

/// Creates a user `member` with the rights of OPERATORS.md, and with `more`, which the page also
/// names.
pub(crate) fn make_member(connection: &mut redis::Connection, more: &[&str]) {
    let page = include_str!("../../OPERATORS.md");
    assert!(
        more.iter()
            .all(|right| page.contains(&format!("`{right}`")))
    );
    let mut lines = page.lines();
    let rights = lines.find(|line| line.starts_with("resetkeys")).unwrap();
    let rights = rights.replace("buses", "test");
    let mut user = cmd("ACL");
    user.arg(&["SETUSER", "member", "on", ">password"]);
    user.arg(rights.split(' ').collect::<Vec<_>>()).arg(more);
    user.exec(connection).unwrap();
}

/// Only the rights of OPERATORS.md, with two members.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_rights_are_sufficient() {
    let (store, server) = or_skip!(stage(Rule::SlidingCounter).await);
    make_member(&mut store.connection(), &[]);
    let client = store.client_of("member");
    let members = [(); 2].map(|()| Member::join(client.clone(), &server, Limits::default()));
    for member in &members {
        member.fleet.ready().await.unwrap();
        member.get().await.unwrap();
    }
    for member in &members {
        member.fleet.leave().await;
    }
    let left: Vec<String> = cmd("HKEYS")
        .arg("{test}:shares")
        .query(&mut store.connection())
        .unwrap();
    assert!(
        left.iter().all(|field| !field.starts_with("member:")),
        "{left:?}"
    );
    assert_eq!(assert_clean(&server), 2);
}

/// Reproducer for F2: new limits apply to all members from the next question on, until their member leaves. Nothing
/// stops.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lower_limits_of_a_new_member_apply_to_all_until_it_leaves() {
    let (store, server) = or_skip!(stage(Rule::SlidingCounter).await);
    let [mut stays, mut goes] = [(); 2].map(|()| tokio::task::JoinSet::new());
    let old = Member::join(store.client(), &server, Limits::default());
    old.call(30, &mut stays);
    sleep(Duration::from_secs(3)).await;
    let twenty = Limits::new(Quota::per_second(NonZeroU32::new(20).unwrap()));
    let new = Member::join(store.client(), &server, twenty);
    new.call(8, &mut goes);
    // A question takes seconds at most, and a share of before ends with it.
    sleep(Duration::from_secs(4)).await;
    let until = async |is_so: fn(&FleetStatus) -> bool| {
        let wait = async {
            while !is_so(&old.fleet.status()) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(HANGS, wait).await.unwrap();
    };
    until(|status| status.total.requests == 20).await;
    let earlier = server.ledger().arrivals().len();
    reaches(&server, 10, 4).await;
    let arrivals = server.ledger().arrivals();
    let seconds = Duration::from_secs(4);
    let most = arrivals[earlier..].windows(81);
    let most = most.map(|some| some[80].at - some[0].at).min();
    assert!(most.is_none_or(|most| most >= seconds), "81 in {most:?}");
    timeout(HANGS, new.fleet.leave()).await.unwrap();
    until(|status| status.share.requests >= 40).await;
    stays.shutdown().await;
    goes.shutdown().await;
    assert_clean(&server);
}

#[test]
fn the_compose_file_has_two_clients_and_a_store() {
    let text = include_str!("../../compose.yaml");
    let file = &yaml_rust2::YamlLoader::load_from_str(text).unwrap()[0];
    let services = &file["services"];
    let client = &services["buses"];
    let store = client["environment"]["TDS_FLEET_STORE"].as_str();
    assert_eq!(store, Some("redis://store:6379"));
    assert_eq!(services["metros"]["<<"], *client);
    // Each build finds its file and its stage, from the folder of this file.
    let build = &client["build"];
    let text = |name: &str| build[name].as_str().unwrap_or_default();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tower-tds-fleet")
        .join(text("context"));
    let file = folder.join(text("dockerfile"));
    let file = std::fs::read_to_string(&file).unwrap_or_else(|_| panic!("{file:?} of {build:?}"));
    let stage = format!(" AS {}", text("target"));
    assert!(file.lines().any(|line| line.ends_with(&stage)), "{stage}");
    let image = services["store"]["image"].as_str();
    assert!(image.unwrap().starts_with("valkey/"));
}
