//! A store that is unreachable, dies, hangs or is emptied, and a member without a secret.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use tokio::time;
use tower_oidc_cc::TokenStore as _;
use tower_tds_fleet::RedisTokens;

use super::world::{World, entry, everything, load, renewed, token, tokens};
use crate::shares::{RedisServer, or_skip};

/// Each fault costs one request per member at its next renewal, and no call; after it, one renews for all.
#[tokio::test]
async fn dead_hung_and_emptied_stores_cost_one_request_per_member_and_no_call() {
    let mut server = or_skip!(RedisServer::start());
    let world = World::new();
    let client = server.client();
    let members = world.members(&client, 5);
    tokens(&members).await;
    let mut posts = 1;
    let renews = async |costs: u64, posts: &mut u64| {
        for member in &members {
            assert_eq!(world.call(member).await, 200, "who has a token asks nobody");
        }
        let renewed = renewed(&world, &members).await;
        *posts += costs;
        assert_eq!(world.posts(), *posts);
        let is_shared = renewed.iter().all(|token| *token == renewed[0]);
        assert_eq!(is_shared, costs == 1);
    };
    server.kill();
    renews(5, &mut posts).await;
    tokens(&world.members(&client, 5)).await;
    posts += 5;
    server.restart();
    renews(1, &mut posts).await;
    server.hang();
    renews(5, &mut posts).await;
    tokens(&world.members(&client, 5)).await;
    posts += 5;
    server.go_on();
    renews(1, &mut posts).await;
    // Between two renewals, neither a restart nor a flush costs anything.
    server.kill();
    server.restart();
    renews(1, &mut posts).await;
    let flush = redis::cmd("FLUSHALL");
    flush.exec(&mut server.connection()).unwrap();
    renews(1, &mut posts).await;
}

#[tokio::test]
async fn hung_store_fails_load_and_save_within_two_seconds() {
    let server = or_skip!(RedisServer::start());
    let store = RedisTokens::new(server.client(), "fleet", "secret");
    let bound = Duration::from_secs(2);
    let entry = entry("key", "token");
    store.save("key", &entry).await.unwrap();
    server.hang();
    let load = time::timeout(bound, load(&store, "key"));
    assert!(load.await.unwrap().is_err());
    let save = time::timeout(bound, store.save("key", &entry));
    assert!(save.await.unwrap().is_err());
}

#[tokio::test]
async fn members_without_a_secret_store_nothing_and_white_space_is_none() {
    let server = or_skip!(RedisServer::start());
    let world = World::new();
    for members in 1..=2 {
        let builder = world.builder();
        let builder = builder.store(RedisTokens::new(server.client(), "fleet", " \n"));
        token(&builder.build::<_, Full<Bytes>, _>(world.sim.clone())).await;
        assert_eq!(world.posts(), members);
    }
    assert!(everything(&server).is_empty());
    // Secrets come from files that end with a newline.
    let store = |secret| RedisTokens::new(server.client(), "fleet", secret);
    let entry = entry("key", "token");
    store("secret").save("key", &entry).await.unwrap();
    let found = load(&store("secret\n"), "key").await.unwrap();
    assert!(found.is_some());
}
