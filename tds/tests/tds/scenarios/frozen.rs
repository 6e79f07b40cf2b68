//! Six cases of a frozen service: the deadline ends `tds get` with an exit code and no data.

use std::net::TcpListener;

use tds_sim::{Config, Faults};
use tokio::task::JoinSet;

use super::{World, ended};

/// Where a service freezes.
#[derive(Debug, Clone, Copy)]
enum Case {
    Head,
    BodyStalls,
    BodyDrips,
    Token,
    DataConnection,
    TokenConnection,
}

async fn frozen(case: Case) {
    let world = World::new(&format!("frozen-{case:?}"), Config::default()).await;
    let mut faults = Faults::default();
    let fault = |text: &str| text.parse().expect("a fault");
    match case {
        Case::Head => faults.before_head = "3600s".parse().expect("a delay"),
        Case::BodyStalls => faults.data.push(fault("stall:3600s")),
        Case::BodyDrips => faults.data.push(fault("drip:2s")),
        Case::Token => faults.token.push("slow:3600s".parse().expect("a fault")),
        Case::DataConnection | Case::TokenConnection => {}
    }
    world.server.sim().set_faults(faults);
    // Its connections are made by the system, and never accepted.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", silent.local_addr().expect("its address"));
    let mut get = world.tds(&["get", "/v1/live/bus", "--deadline", "6s"]);
    match case {
        Case::DataConnection => get.env("TDS_BASE_URL", address),
        Case::TokenConnection => get.env("TDS_AUTH_URL", address),
        _ => &mut get,
    };
    let run = ended(get.spawn().expect("it starts"), 5).await;
    let err = String::from_utf8_lossy(&run.stderr);
    let seen = world.summary();
    println!(
        "frozen, {case:?}: {} calls, {} token requests; {}",
        seen.data_calls,
        seen.token_posts,
        err.trim_end()
    );
    assert!(run.stdout.is_empty(), "no data, and no part of it");
    assert_eq!(err.lines().count(), 1, "{err}");
    let is_token = matches!(case, Case::Token | Case::TokenConnection);
    assert_eq!(err.contains("a token from"), is_token, "{err}");
    let calls = match case {
        Case::Head | Case::BodyStalls | Case::BodyDrips => 1,
        Case::Token | Case::DataConnection | Case::TokenConnection => 0,
    };
    assert_eq!(seen.data_calls, calls, "{case:?}");
    assert!(seen.token_posts <= 1, "{case:?}: {seen:?}");
}

#[tokio::test]
async fn six_cases_of_a_frozen_service_end_at_the_deadline() {
    let mut cases = JoinSet::new();
    for case in [
        Case::Head,
        Case::BodyStalls,
        Case::BodyDrips,
        Case::Token,
        Case::DataConnection,
        Case::TokenConnection,
    ] {
        cases.spawn(frozen(case));
    }
    cases.join_all().await;
}
