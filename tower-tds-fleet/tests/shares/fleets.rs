//! One fleet of two versions.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use tds_sim::Rule;
use tokio::time::sleep;

use crate::shares::{RedisServer, assert_clean, process::Process, remember, service};

/// A program of these tests from an earlier version, named by `FLEET_EARLIER`: `.ci/slow` builds it.
fn earlier() -> Option<PathBuf> {
    let earlier = env::var_os("FLEET_EARLIER").map(PathBuf::from);
    if earlier.is_none() {
        println!("SKIPPED: FLEET_EARLIER names no program of an earlier version");
    }
    earlier
}

/// Replaces four processes of one version by those of another, one every `pause`. Prints the rates.
async fn update(name: &str, from: &Path, to: &Path, pause: Duration) -> Option<()> {
    let store = RedisServer::start()?;
    remember(&store);
    let server = service(Rule::SlidingCounter).await;
    let start = |program: &Path| Some(Process::of(program, &store, &server, &[]));
    let mut processes: Vec<_> = (0..4).map(|_| start(from)).collect();
    let seen = async |seconds: u64| {
        let before = assert_clean(&server);
        sleep(Duration::from_secs(seconds)).await;
        (assert_clean(&server) - before) as f64 / seconds as f64
    };
    sleep(Duration::from_secs(8)).await;
    let usual = seen(10).await;
    let before = server.ledger().arrivals().len();
    let mut during = Vec::new();
    for process in &mut processes {
        if let Some(old) = process.take() {
            old.end().await;
        }
        *process = start(to);
        during.push(seen(pause.as_secs()).await);
    }
    sleep(Duration::from_secs(20)).await;
    let after = seen(10).await;
    let arrivals: Vec<_> = server.ledger().arrivals().iter().map(|a| a.at).collect();
    let gaps = arrivals[before.saturating_sub(1)..].windows(2);
    let longest = gaps.map(|pair| pair[1].saturating_sub(pair[0])).max();
    println!(
        "{name}: {usual:.1} a second, then {during:.1?}, then {after:.1}; longest gap {longest:.1?}"
    );
    assert!(longest.unwrap() <= Duration::from_secs(20), "{longest:?}");
    assert!(after >= 0.85 * usual, "{after} of {usual}");
    Some(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn a_rolling_update_and_its_way_back_cause_no_refusal() {
    let (Some(earlier), this) = (earlier(), env::current_exe().unwrap()) else {
        return;
    };
    for (name, from, to) in [
        ("to this version", &earlier, &this),
        ("back to the one before", &this, &earlier),
    ] {
        let _skipped = update(name, from, to, Duration::from_secs(8)).await;
    }
}

/// The same without another version, so that it runs wherever there is a store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn a_rolling_update_of_members_that_leave_keeps_the_rate() {
    let this = env::current_exe().unwrap();
    let _skipped = update("to the same version", &this, &this, Duration::from_secs(8)).await;
}
