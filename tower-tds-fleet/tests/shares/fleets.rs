//! One fleet of two versions.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use tds_sim::Rule;
use tokio::time::sleep;

use crate::shares::{assert_clean, process::Process, stage};

/// Replaces four processes of one version by those of another, one every `pause`. Prints the rates.
async fn update(name: &str, from: &Path, to: &Path, pause: Duration) -> Option<()> {
    let (store, server) = stage(Rule::SlidingCounter).await?;
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

/// `FLEET_EARLIER` names a program of these tests from an earlier version: `.ci/slow` builds it. Without one, all processes
/// are of this version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn a_rolling_update_and_its_way_back_cause_no_refusal() {
    let this = env::current_exe().unwrap();
    let earlier = env::var_os("FLEET_EARLIER").map(PathBuf::from);
    let updates = match &earlier {
        None => vec![("to the same version", &this, &this)],
        Some(earlier) => vec![
            ("to this version", earlier, &this),
            ("back to the one before", &this, earlier),
        ],
    };
    for (name, from, to) in updates {
        let _skipped = update(name, from, to, Duration::from_secs(8)).await;
    }
}
