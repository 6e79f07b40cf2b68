//! One token for fifty members, with a redis-server: the requests to the token endpoint, and the
//! content of the store.

mod entry;
mod outage;
mod tls;
mod turn;
mod world;

use tokio::{runtime, task::JoinSet};

use self::world::{World, successor, tokens, turns};
use crate::shares::redis_server::RedisServer;

#[test]
fn fifty_cold_members_on_five_runtimes_make_one_request() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let ten = |_| {
        let (world, client) = (world.clone(), server.client());
        std::thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            let members = world.members(&client, 10);
            runtime.unwrap().block_on(tokens(&members))
        })
    };
    let threads: Vec<_> = (0..5).map(ten).collect();
    let all: Vec<_> = threads
        .into_iter()
        .flat_map(|ten| ten.join().unwrap())
        .collect();
    assert_eq!(all.len(), 50);
    assert!(all.iter().all(|token| *token == all[0]));
    assert_eq!(world.posts(), 1);
    assert_eq!(turns(&server), 0, "its end came with the token");
}

#[tokio::test]
async fn one_of_fifty_members_renews_the_token_for_all() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let members = world.members(&server.client(), 50);
    let mut old = tokens(&members).await.swap_remove(0);
    for renewal in 2..=3 {
        world.renew(&members).await;
        old = successor(&members, &old).await;
        assert_eq!(world.posts(), renewal);
    }
}

#[tokio::test]
async fn revoked_token_is_replaced_by_one_request_for_all_members() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let members = world.members(&server.client(), 50);
    let old = tokens(&members).await.swap_remove(0);
    for member in &members {
        assert_eq!(world.call(member).await, 200);
    }
    world.sim.revoke_all();
    let mut calls = JoinSet::new();
    for member in members.clone() {
        let world = world.clone();
        calls.spawn(async move { [world.call(&member).await, world.call(&member).await] });
    }
    for answers in calls.join_all().await {
        assert_eq!(answers, [401, 200], "each hears of it once");
    }
    successor(&members, &old).await;
    assert_eq!(world.posts(), 2);
}

#[tokio::test]
async fn late_member_finds_the_successor_of_a_revoked_token() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let members = world.members(&server.client(), 5);
    tokens(&members).await;
    world.sim.revoke_all();
    for member in &members {
        assert_eq!(world.call(member).await, 401);
        assert_eq!(world.call(member).await, 200);
        member.idle().await;
        assert_eq!(world.posts(), 2);
    }
}
