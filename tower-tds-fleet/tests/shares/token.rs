//! One token for fifty members, with a redis-server: the requests to the token endpoint, and the
//! content of the store.

mod entry;
mod outage;
mod turn;
pub(crate) mod world;

use tokio::{runtime, task::JoinSet};

use self::world::{World, renewed, tokens, turns};
use crate::shares::{RedisServer, or_skip};

#[test]
fn fifty_cold_members_on_five_runtimes_make_one_request() {
    let server = or_skip!(RedisServer::start());
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
async fn fifty_members_make_one_request_for_each_renewal_and_each_revocation() {
    let server = or_skip!(RedisServer::start());
    let world = World::new();
    let members = world.members(&server.client(), 50);
    let is_shared = |all: Vec<String>| all.iter().all(|token| *token == all[0]);
    for renewal in 2..=3 {
        assert!(is_shared(renewed(&world, &members).await));
        assert_eq!(world.posts(), renewal);
    }
    for member in &members {
        assert_eq!(world.call(member).await, 200);
    }
    world.sim.revoke_all();
    let mut calls = JoinSet::new();
    for member in members.iter().skip(1) {
        let (world, member) = (world.clone(), member.clone());
        calls.spawn(async move { [world.call(&member).await, world.call(&member).await] });
    }
    for answers in calls.join_all().await {
        assert_eq!(answers, [401, 200], "each hears of it once");
    }
    assert_eq!(world.posts(), 4);
    // A late member finds the successor in the store.
    assert_eq!(world.call(&members[0]).await, 401);
    assert_eq!(world.call(&members[0]).await, 200);
    assert!(is_shared(tokens(&members).await));
    assert_eq!(world.posts(), 4);
}
