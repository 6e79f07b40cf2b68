//! Faults of the store, while four members call.

use std::{fs, time::Duration};

use redis::cmd;
use tds_sim::{Rule, Server};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tower_tds::Limits;
use tower_tds_fleet::Store;

use crate::shares::{HANGS, Member, RedisServer, assert_clean, on_a_port, remember, service};

/// Four busy members through a fault. Prints the longest time without a request, and the time from
/// the fault until the rate is back at three quarters.
pub(crate) async fn through(
    name: &str,
    store: impl Into<Store> + Clone,
    rule: Rule,
    lasts: u64,
    fault: impl AsyncFnOnce(),
) {
    let server = service(rule).await;
    let members: Vec<_> = (0..4)
        .map(|_| Member::join(store.clone(), &server, Limits::default()))
        .collect();
    let mut running = JoinSet::new();
    for member in &members {
        member.call(8, &mut running);
    }
    sleep(Duration::from_secs(6)).await;
    let before = server.ledger().arrivals().len();
    fault().await;
    let after = server.ledger().arrivals().len();
    sleep(Duration::from_secs(lasts)).await;
    let recovered = async {
        while back(&server, after).is_none() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    let recovered = timeout(HANGS, recovered).await;
    recovered.unwrap_or_else(|_| panic!("{name}: it does not recover"));
    running.shutdown().await;
    assert_clean(&server);
    report(name, &server, before, after);
}

fn times(server: &Server) -> Vec<Duration> {
    server.ledger().arrivals().iter().map(|a| a.at).collect()
}

/// When the rate is back at three quarters, of the requests from `after` on.
fn back(server: &Server, after: usize) -> Option<Duration> {
    let since = times(server).split_off(after);
    let mut enough = since.windows(60);
    let enough = enough.find(|some| some[59] - some[0] < Duration::from_secs(2));
    enough.map(|some| some[0])
}

fn report(name: &str, server: &Server, before: usize, after: usize) {
    let arrivals = times(server);
    let gaps = arrivals[before..].windows(2).map(|pair| pair[1] - pair[0]);
    let longest = gaps.max().unwrap_or_default();
    let began = arrivals[before.saturating_sub(1)];
    let back = back(server, after).map(|at| at.saturating_sub(began));
    println!(
        "{name}: longest gap {longest:.1?}, three quarters of the rate again after {back:.1?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted_store_causes_no_refusal() {
    let Some(mut store) = RedisServer::start() else {
        return;
    };
    remember(&store);
    through(
        "kill -9 and restart",
        store.client(),
        Rule::SlidingCounter,
        25,
        async || {
            store.kill();
            sleep(Duration::from_secs(1)).await;
            store.restart();
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_hang_of_nine_seconds_causes_no_refusal() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    remember(&store);
    through(
        "SIGSTOP for 9 s",
        store.client(),
        Rule::SlidingLogAll,
        12,
        async || {
            store.hang();
            sleep(Duration::from_secs(9)).await;
            store.go_on();
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_store_causes_no_refusal() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    remember(&store);
    through(
        "FLUSHALL",
        store.client(),
        Rule::SlidingCounter,
        12,
        async || {
            cmd("FLUSHALL").exec(&mut store.connection()).unwrap();
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_cause_no_refusal() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    remember(&store);
    through(
        "SCRIPT FLUSH",
        store.client(),
        Rule::SlidingCounter,
        5,
        async || {
            cmd("SCRIPT")
                .arg("FLUSH")
                .exec(&mut store.connection())
                .unwrap();
        },
    )
    .await;
}

/// Moves the times of the hash back, as if the server's clock were set forward.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forward_step_of_the_store_clock_causes_no_refusal() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    remember(&store);
    through(
        "clock 1.5 s forward",
        store.client(),
        Rule::SlidingCounter,
        8,
        async || {
            let shift = "local h = redis.call('HGETALL', 'KEY')
            for i = 1, #h, 2 do
              if h[i]:match('^member:') then
                local n = cjson.decode('[' .. h[i + 1] .. ']')
                n[13], n[16] = n[13] - 1500, n[16] - 1500
                redis.call('HSET', 'KEY', h[i], table.concat(n, ','))
              end
            end";
            let shift = shift.replace("KEY", "{test}:shares");
            cmd("EVAL")
                .arg(shift)
                .arg(0)
                .exec(&mut store.connection())
                .unwrap();
        },
    )
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
    let Some((master, address)) = on_a_port() else {
        return;
    };
    let replica = RedisServer::start().unwrap();
    remember(&master);
    let (host, port) = address.split_once(':').unwrap();
    let follow = |of: &[&str]| {
        cmd("REPLICAOF")
            .arg(of)
            .exec(&mut replica.connection())
            .unwrap()
    };
    follow(&[host, port]);
    through(
        "replica promoted, and led back",
        master.client(),
        Rule::SlidingCounter,
        20,
        async || {
            // The replica lags: the writes of the last three seconds are lost.
            cmd("CONFIG")
                .arg(&["SET", "repl-timeout", "600"])
                .exec(&mut replica.connection())
                .unwrap();
            follow(&["NO", "ONE"]);
            sleep(Duration::from_secs(3)).await;
            change_places(&master, &replica);
            sleep(Duration::from_secs(20)).await;
            change_places(&master, &replica);
        },
    )
    .await;
}
