//! Refusals: told to one member, kept to by all.

use std::{num::NonZeroU64, time::Duration};

use tds_sim::{DataFault, Rule, Scripted, When};
use tokio::time::{sleep, timeout};

use crate::{RedisServer, bus, get, known, member, quick, service};

/// The service answers so once, to one of three members that all go on; then nobody is heard of for
/// `pause`.
async fn silences(status: u16, pause: Duration) {
    let Some(store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let server = service(Rule::FixedWindow, quick()).await;
    let members: Vec<_> = (0..3).map(|_| member(&store, &server)).collect();
    // Each has its token, and they go on at their ease.
    for (client, _) in &members {
        get(client.clone(), bus(&server)).await.expect("an answer");
    }
    let going: Vec<_> = members
        .iter()
        .map(|(client, _)| {
            let (client, url) = (client.clone(), bus(&server));
            tokio::spawn(async move {
                loop {
                    get(client.clone(), url.clone()).await.expect("an answer");
                }
            })
        })
        .collect();
    sleep(Duration::from_millis(500)).await;
    let mut faults = server.sim().faults();
    let once = When::Every(NonZeroU64::new(40).expect("not 0"));
    faults.data = vec![Scripted::new(DataFault::Status { status, burst: 1 }, once)];
    server.sim().set_faults(faults);
    let refused = loop {
        let arrivals = server.ledger().arrivals();
        if let Some(refused) = arrivals
            .iter()
            .find(|arrival| arrival.status == Some(status))
        {
            break refused.ended.unwrap_or(refused.at);
        }
        sleep(Duration::from_millis(2)).await;
    };
    let mut faults = server.sim().faults();
    faults.data.clear();
    server.sim().set_faults(faults);
    sleep(pause).await;
    let last = || server.ledger().arrivals().last().map(|arrival| arrival.at);
    let goes_on = async {
        while last() < Some(refused + pause) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let goes_on = timeout(Duration::from_secs(20), goes_on).await;
    goes_on.expect("they go on");
    for going in &going {
        assert!(!going.is_finished());
        going.abort();
    }
    let told = refused + TOLD;
    let arrivals = server.ledger().arrivals();
    let early: Vec<_> = arrivals
        .iter()
        .map(|arrival| arrival.at)
        .filter(|at| *at > told && *at < refused + pause)
        .collect();
    assert!(early.is_empty(), "refused at {refused:?}: {early:?}");
}

/// In which the answer comes back, is told to the store, and what had been granted before arrives.
const TOLD: Duration = Duration::from_millis(700);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_423_silences_all_for_a_second() {
    silences(423, Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_429_pauses_all() {
    silences(429, Duration::from_secs(1)).await;
}
