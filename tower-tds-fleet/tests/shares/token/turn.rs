//! The lease: one process holds it and returns it, or it expires.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use tokio::runtime;
use tower_oidc_cc::TokenStore as _;
use tower_tds_fleet::RedisTokens;

use super::world::{World, current, entry, load, tokens, turns, until};
use crate::shares::{RedisServer, or_skip};

#[tokio::test]
async fn only_the_member_whose_turn_it_is_ends_it() {
    let server = or_skip!(RedisServer::start());
    let store = || RedisTokens::new(server.client(), "fleet", "secret");
    let (one, two) = (store(), store());
    assert!(load(&one, "key").await.unwrap().is_none());
    // Its turn has expired, and another member has it now.
    let delete = redis::cmd("FLUSHALL");
    delete.exec(&mut server.connection()).unwrap();
    assert!(load(&two, "key").await.unwrap().is_none());
    one.save("key", &entry("key", "token")).await.unwrap();
    assert_eq!(turns(&server), 1, "who was late saves, and ends nothing");
    two.save("key", &entry("key", "token")).await.unwrap();
    assert_eq!(turns(&server), 0);
}

#[tokio::test]
async fn failed_token_request_ends_the_turn() {
    let server = or_skip!(RedisServer::start());
    let world = World::new();
    let mut faults = world.sim.faults();
    faults.token = vec!["503".parse().unwrap()];
    world.sim.set_faults(faults);
    let member = world.member(server.client());
    assert!(member.ready().await.is_err());
    member.idle().await;
    assert_eq!(turns(&server), 0);
}

#[test]
fn one_member_takes_over_the_turn_of_a_dead_member() {
    let server = or_skip!(RedisServer::start());
    let world = World::new();
    let healthy = world.sim.faults();
    let mut faults = healthy.clone();
    faults.token = vec!["slow:3600s".parse().unwrap()];
    world.sim.set_faults(faults);
    // The turn lasts for five seconds. The member is killed long before its request ends.
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
    // As a killed process: none of its tasks run, and its turn stays.
    dying.shutdown_background();
    assert_eq!(turns(&server), 1);
    world.sim.set_faults(healthy);
    let others = world.members(&server.client(), 10);
    let all = runtime().unwrap().block_on(tokens(&others));
    assert!(all.iter().all(|token| *token == all[0]));
    assert_eq!(world.posts(), 2);
}
