//! The lease: one process holds it and releases it, or it expires.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use tokio::runtime;
use tower_oidc_cc::TokenStore as _;
use tower_tds_fleet::RedisTokens;

use super::world::{World, current, entry, leases, tokens, until};
use crate::redis_server::RedisServer;

#[tokio::test]
async fn only_the_lease_holder_can_release_the_lease() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let store = || RedisTokens::new(server.client(), "fleet", "secret");
    let (one, two) = (store(), store());
    let term = Duration::from_secs(600);
    assert!(one.lease("key", term).await.unwrap());
    assert!(!two.lease("key", term).await.unwrap());
    // The lease has expired, and another member holds it now.
    let delete = redis::cmd("FLUSHALL");
    delete.exec(&mut server.connection()).unwrap();
    assert!(two.lease("key", term).await.unwrap());
    one.save("key", &entry("key", "token")).await.unwrap();
    assert_eq!(leases(&server), 1, "who was late saves, and ends nothing");
    assert!(one.release("key"));
    assert!(one.release("other"), "and does not wait for it");
    settled(&server, 2).await;
    assert_eq!(leases(&server), 1);
    assert!(two.release("key"));
    until("the end of the lease", || leases(&server) == 0).await;
    assert!(one.lease("key", term).await.unwrap());
    one.save("key", &entry("key", "token")).await.unwrap();
    assert_eq!(leases(&server), 0);
}

/// Waits until the server has completed this number of scripts since its start.
async fn settled(server: &RedisServer, scripts: u32) {
    until("the scripts", || {
        let mut info = redis::cmd("INFO");
        let text: String = info
            .arg("commandstats")
            .query(&mut server.connection())
            .unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("cmdstat_evalsha:"));
        let count = |name| {
            let (_, rest) = line?.split_once(name)?;
            rest.split(',').next()?.parse::<u32>().ok()
        };
        let ran = count(":calls=").unwrap_or(0) - count("failed_calls=").unwrap_or(0);
        ran >= scripts
    })
    .await;
}

#[tokio::test]
async fn failed_token_request_releases_the_redis_lease() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let mut faults = world.sim.faults();
    faults.token = vec!["503".parse().unwrap()];
    world.sim.set_faults(faults);
    // Its lease would last for twenty minutes.
    let builder = world.builder().timeout(Duration::from_secs(600));
    let member = builder.store(world.store(server.client()));
    let member = member.build::<_, Full<Bytes>, _>(world.sim.clone());
    assert!(member.ready().await.is_err());
    until("the end of the lease", || leases(&server) == 0).await;
}

#[test]
fn one_member_takes_over_the_lease_of_a_dead_member() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let healthy = world.sim.faults();
    let mut faults = healthy.clone();
    faults.token = vec!["slow:3600s".parse().unwrap()];
    world.sim.set_faults(faults);
    // The lease lasts for five seconds. The member is killed long before its request ends.
    let bound = Duration::from_millis(1_500);
    let builder = world.builder().timeout(bound);
    let builder = builder.store(world.store(server.client()));
    let first = builder.build::<_, Full<Bytes>, _>(world.sim.clone());
    // On one thread its request cannot time out between the last look at it and its end, however long that takes.
    let runtime = || runtime::Builder::new_current_thread().enable_all().build();
    let dying = runtime().unwrap();
    dying.block_on(async {
        assert_eq!(current(&first), None);
        until("its request", || world.posts() == 1).await;
    });
    // As a killed process: none of its tasks run, and its lease stays.
    dying.shutdown_background();
    assert_eq!(leases(&server), 1);
    world.sim.set_faults(healthy);
    let others = world.members(&server.client(), 10);
    let all = runtime().unwrap().block_on(tokens(&others));
    assert!(all.iter().all(|token| *token == all[0]));
    assert_eq!(world.posts(), 2);
}
