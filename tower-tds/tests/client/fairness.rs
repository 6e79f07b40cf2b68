//! Other callers beside ten calls without an answer, over sockets. The rate that is left to them under paused time is in the tests of
//! the limits, `requests/isolation.rs`.

use std::time::Duration;

use tds_sim::Server;
use tokio::{task::JoinSet, time::timeout};

use crate::client::world::{faults, read, served, until};

/// The calls of these that came.
fn came(server: &Server, who: &str) -> usize {
    let all = server.ledger().arrivals();
    let like = all.iter().filter(|arrival| arrival.target.ends_with(who));
    like.count()
}

#[tokio::test]
async fn callers_over_sockets_are_served_while_ten_calls_get_no_answer() {
    let (server, client) = served().await;
    let mut faults = faults(&["head=80ms"]);
    faults.before_head_of = Some(("slow".to_owned(), "3600s".parse().expect("a delay")));
    server.sim().set_faults(faults);
    let mut calls = JoinSet::new();
    for _ in 0..10 {
        let client = client.clone();
        calls.spawn(async move {
            loop {
                drop(read(client.get("/v1/live/bus?by=quick")).await);
            }
        });
    }
    for _ in 0..10 {
        let call = read(client.get("/v1/live/bus?by=slow"));
        calls.spawn(async { drop(call.await) });
    }
    until(|| came(&server, "slow") == 10).await;
    let enough = came(&server, "quick") + 200;
    let served = until(|| came(&server, "quick") >= enough);
    timeout(HANGS, served).await.expect("they are served");
    let seen = server.ledger().summary();
    assert!(seen.in_progress >= 10, "{seen:?}");
    assert_eq!(seen.by_status.get(&423), None, "{seen:?}");
}

/// Many times as long as they take on a busy machine.
const HANGS: Duration = Duration::from_secs(90);
