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

use crate::shares::{HANGS, Member, RedisServer, assert_clean, on_a_port, remember, run, service};

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

/// The same with one server.
async fn through_one(
    name: &str,
    rule: Rule,
    lasts: u64,
    fault: impl AsyncFnOnce(&mut RedisServer),
) {
    let Some(mut store) = RedisServer::start() else {
        return;
    };
    remember(&store);
    let client = store.client();
    through(name, client, rule, lasts, async || fault(&mut store).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted_store_causes_no_refusal() {
    let rule = Rule::SlidingCounter;
    through_one("kill -9 and restart", rule, 25, async |store| {
        store.kill();
        sleep(Duration::from_secs(1)).await;
        store.restart();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_hang_of_nine_seconds_causes_no_refusal() {
    through_one("SIGSTOP for 9 s", Rule::SlidingLogAll, 12, async |store| {
        store.hang();
        sleep(Duration::from_secs(9)).await;
        store.go_on();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_store_causes_no_refusal() {
    let flush = async |store: &mut RedisServer| run(store, "FLUSHALL", &[]);
    through_one("FLUSHALL", Rule::SlidingCounter, 12, flush).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_cause_no_refusal() {
    let flush = async |store: &mut RedisServer| run(store, "SCRIPT", &["FLUSH"]);
    through_one("SCRIPT FLUSH", Rule::SlidingCounter, 5, flush).await;
}

/// Moves the times of the hash back, as if the server's clock were set forward.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forward_step_of_the_store_clock_causes_no_refusal() {
    let shift = "local h = redis.call('HGETALL', '{test}:shares')
        for i = 1, #h, 2 do
          if h[i]:match('^member:') then
            local n = cjson.decode('[' .. h[i + 1] .. ']')
            n[13], n[16] = n[13] - 1500, n[16] - 1500
            redis.call('HSET', '{test}:shares', h[i], table.concat(n, ','))
          end
        end";
    let shift = async |store: &mut RedisServer| run(store, "EVAL", &[shift, "0"]);
    through_one("clock 1.5 s forward", Rule::SlidingCounter, 8, shift).await;
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
    run(&replica, "REPLICAOF", &[host, port]);
    let (name, rule) = ("replica promoted, and led back", Rule::SlidingCounter);
    through(name, master.client(), rule, 20, async || {
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
