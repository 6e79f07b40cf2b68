//! Faults of the store, while four members call.

use std::{fs, time::Duration};

use redis::cmd;
use tds_sim::Rule;
use tokio::{task::JoinSet, time::sleep};
use tower_tds::Limits;
use tower_tds_fleet::Store;

use crate::shares::{
    Member, RedisServer, assert_clean, on_a_port, operators::make_member, or_skip, reaches,
    remember, run, service, stage,
};

/// Four busy members through a fault: some time after it, the rate is back at three quarters, and nothing was refused.
pub(crate) async fn through(
    store: impl Into<Store> + Clone,
    rule: Rule,
    lasts: u64,
    fault: impl AsyncFnOnce(),
) {
    let server = service(rule).await;
    let members = [(); 4].map(|()| Member::join(store.clone(), &server, Limits::default()));
    let mut running = JoinSet::new();
    for member in &members {
        member.call(8, &mut running);
    }
    sleep(Duration::from_secs(6)).await;
    fault().await;
    sleep(Duration::from_secs(lasts)).await;
    let took = reaches(&server, 30, 2).await;
    println!("three quarters of the rate {took:.1?} after these {lasts} s");
    running.shutdown().await;
    assert_clean(&server);
}

/// The same with one server.
async fn through_one(rule: Rule, lasts: u64, fault: impl AsyncFnOnce(&mut RedisServer)) {
    let mut store = or_skip!(RedisServer::start());
    remember(&store);
    let client = store.client();
    through(client, rule, lasts, async || fault(&mut store).await).await;
}

/// The new server has neither the hash nor the script.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted_store_causes_no_refusal() {
    let rule = Rule::SlidingCounter;
    through_one(rule, 25, async |store| {
        store.kill();
        sleep(Duration::from_secs(1)).await;
        store.restart();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_hang_of_nine_seconds_causes_no_refusal() {
    through_one(Rule::SlidingLogAll, 12, async |store| {
        store.hang();
        sleep(Duration::from_secs(9)).await;
        store.go_on();
    })
    .await;
}

/// Exchanges the addresses of the two servers.
fn change_places(this: &RedisServer, that: &RedisServer) {
    let mut connections = [this, that].map(RedisServer::connection);
    let (this, that) = (this.socket(), that.socket());
    let aside = this.with_extension("aside");
    for (from, to) in [(&this, &aside), (&that, &this), (&aside, &that)] {
        fs::rename(from, to).unwrap();
    }
    for connection in &mut connections {
        let kill = ["KILL", "TYPE", "normal", "SKIPME", "yes"];
        cmd("CLIENT").arg(&kill).exec(connection).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promoted_stale_replica_and_returning_master_cause_no_refusal() {
    let (master, address) = or_skip!(on_a_port());
    let replica = RedisServer::start().unwrap();
    remember(&master);
    let (host, port) = address.split_once(':').unwrap();
    run(&replica, "REPLICAOF", &[host, port]);
    through(master.client(), Rule::SlidingCounter, 20, async || {
        // The replica lags: the writes of the last three seconds are lost.
        run(&replica, "CONFIG", &["SET", "repl-timeout", "600"]);
        run(&replica, "REPLICAOF", &["NO", "ONE"]);
        sleep(Duration::from_secs(3)).await;
        change_places(&master, &replica);
        sleep(Duration::from_secs(20)).await;
        change_places(&master, &replica);
    })
    .await;
}

/// The store's administrator shuts two members out, which go on calling until their shares end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connected_members_take_over_the_shares_of_two_cut_off() {
    let (store, server) = or_skip!(stage(Rule::SlidingCounter).await);
    make_member(&mut store.connection(), &[]);
    let cut = store.client_of("member");
    let clients = [cut.clone(), cut, store.client(), store.client()];
    let members = clients.map(|client| Member::join(client, &server, Limits::default()));
    let mut running = JoinSet::new();
    for member in &members {
        member.call(8, &mut running);
    }
    sleep(Duration::from_secs(5)).await;
    run(&store, "ACL", &["SETUSER", "member", "off"]);
    run(&store, "CLIENT", &["KILL", "USER", "member"]);
    sleep(Duration::from_secs(22)).await;
    reaches(&server, 34, 3).await;
    assert_eq!(members[0].fleet.status().share.requests, 0);
    run(&store, "ACL", &["SETUSER", "member", "on"]);
    sleep(Duration::from_secs(5)).await;
    running.shutdown().await;
    assert_clean(&server);
    assert!(members[0].fleet.status().share.requests > 0);
}
