//! A store that is unreachable, dies, hangs or is emptied, and a member without a secret.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use tokio::time;
use tower_oidc_cc::TokenStore as _;
use tower_tds_fleet::RedisTokens;

use super::world::{World, entry, everything, load, renewed, token, tokens};
use crate::shares::redis_server::RedisServer;

#[tokio::test]
async fn members_without_store_request_their_own_tokens() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let client = server.client();
    server.kill();
    let world = World::new();
    let members = world.members(&client, 5);
    tokens(&members).await;
    assert_eq!(world.posts(), 5);
    // The store is back: the next renewal is one for all.
    server.restart();
    let renewed = renewed(&world, &members).await;
    assert!(renewed.iter().all(|token| *token == renewed[0]));
    assert_eq!(world.posts(), 6);
}

#[tokio::test]
async fn killed_store_costs_one_request_per_member_and_no_call() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let members = world.members(&server.client(), 5);
    tokens(&members).await;
    assert_eq!(world.posts(), 1);
    server.kill();
    for member in &members {
        assert_eq!(world.call(member).await, 200, "who has a token asks nobody");
    }
    renewed(&world, &members).await;
    assert_eq!(world.posts(), 1 + 5);
    for member in &members {
        assert_eq!(world.call(member).await, 200);
    }
}

#[tokio::test]
async fn store_restart_or_flush_between_renewals_adds_no_request() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let members = world.members(&server.client(), 10);
    tokens(&members).await;
    server.kill();
    server.restart();
    // A connection is kept for a second, and between two renewals lie hours.
    time::sleep(Duration::from_millis(1_100)).await;
    renewed(&world, &members).await;
    assert_eq!(
        world.posts(),
        2,
        "no member stumbles over its old connection"
    );
    let flush = redis::cmd("FLUSHALL");
    flush.exec(&mut server.connection()).unwrap();
    renewed(&world, &members).await;
    assert_eq!(world.posts(), 3);
}

#[tokio::test]
async fn hung_store_costs_one_request_per_member_and_no_call() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let members = world.members(&server.client(), 5);
    tokens(&members).await;
    server.hang();
    for member in &members {
        assert_eq!(world.call(member).await, 200, "who has a token asks nobody");
    }
    renewed(&world, &members).await;
    assert_eq!(world.posts(), 1 + 5);
    let cold = world.members(&server.client(), 5);
    tokens(&cold).await;
    assert_eq!(world.posts(), 1 + 10);
    server.go_on();
    renewed(&world, &members).await;
    assert_eq!(world.posts(), 1 + 10 + 1);
}

#[tokio::test]
async fn hung_store_fails_load_and_save_within_two_seconds() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let store = RedisTokens::new(server.client(), "fleet", "secret");
    let bound = Duration::from_secs(2);
    // Runs with an open connection, and without one.
    for _ in 0..2 {
        store.save("key", &entry("key", "token")).await.unwrap();
        server.hang();
        for _ in 0..2 {
            let load = time::timeout(bound, load(&store, "key"));
            assert!(load.await.unwrap().is_err());
            let entry = entry("key", "token");
            let save = time::timeout(bound, store.save("key", &entry));
            assert!(save.await.unwrap().is_err());
        }
        server.go_on();
    }
}

#[tokio::test]
async fn members_without_a_secret_store_nothing() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    for members in 1..=2 {
        let builder = world.builder();
        let builder = builder.store(RedisTokens::new(server.client(), "fleet", " \n"));
        token(&builder.build::<_, Full<Bytes>, _>(world.sim.clone())).await;
        assert_eq!(world.posts(), members);
    }
    assert!(everything(&server).is_empty());
}

#[tokio::test]
async fn white_space_around_the_secret_is_ignored() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let store = |secret| RedisTokens::new(server.client(), "fleet", secret);
    store("secret")
        .save("key", &entry("key", "token"))
        .await
        .unwrap();
    let found = load(&store("secret\n"), "key").await.unwrap();
    assert!(
        found.is_some(),
        "secrets come from files that end with a newline"
    );
}
