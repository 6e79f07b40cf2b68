//! How often the store is asked, by its own count, and who is told.

use std::{collections::HashSet, num::NonZeroU32, time::Duration};

use tds_sim::{Delay, Rule};
use tokio::time::{Instant, sleep, timeout};
use tower_tds_fleet::Fleet;
use tower_tds_limits::{AskLease, Ended, Leases, Limits, Outcome, Quota, Rules};

use crate::{RedisServer, bus, get, join, known, member, service};

/// How often the script was run.
fn questions(store: &RedisServer) -> u64 {
    let mut info = redis::cmd("INFO");
    let stats = info.arg("commandstats");
    let stats: String = stats.query(&mut store.connection()).expect("it answers");
    let (_, calls) = stats.split_once("cmdstat_evalsha:calls=").expect("it was");
    let (calls, _) = calls.split_once(',').expect("and more");
    calls.parse().expect("a number")
}

/// One request a second, and nothing else is counted.
fn one() -> Limits {
    Limits::new(Quota::per_second(NonZeroU32::MIN)).rules(Rules::window())
}

/// A store that knows that nothing was granted by these limits, and its members.
async fn members<const N: usize>(store: &RedisServer, limits: &Limits) -> [Fleet; N] {
    known::known(store, "test", limits).await;
    [(); N].map(|()| Fleet::join(&store.url(), "test", limits).expect("a store"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_call_asks_once_until_it_is_sent_and_tells_once_what_came_of_it() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let slow = Delay::Constant(Duration::from_millis(300));
    let server = service(Rule::SlidingLogAll, slow).await;
    let (client, fleet) = member(&store, &server);
    // It has its token by then.
    get(client.clone(), bus(&server)).await.expect("an answer");
    for calls in 2..5 {
        fleet.idle().await;
        let before = questions(&store);
        let call = tokio::spawn(get(client.clone(), bus(&server)));
        while server.ledger().summary().data_calls < calls {
            sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(questions(&store), before + 1);
        call.await.expect("no panic").expect("an answer");
        fleet.idle().await;
        assert_eq!(questions(&store), before + 2);
    }
}

/// Three that wait for half a minute ask when they come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_through_a_pause_does_not_ask_meanwhile() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let [told, others @ ..] = [(); 4].map(|()| join(&store));
    let lease = told.lease(AskLease::default()).await.expect("a lease");
    let pause = Some(Duration::from_secs(30));
    lease.end(Ended::Proven(Outcome::QuotaExceeded(pause)));
    told.idle().await;
    for fleet in &others {
        fleet.idle().await;
    }
    let before = questions(&store);
    let waits = others.map(|fleet| {
        tokio::spawn(async move {
            let lease = fleet.lease(AskLease::default()).await.expect("a lease");
            lease.end(Ended::Proven(Outcome::Answered));
        })
    });
    sleep(Duration::from_millis(3_500)).await;
    let asked = questions(&store) - before;
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    // Each once, and once when it joined.
    assert!(asked <= 6, "{asked}");
    for wait in waits {
        wait.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_told_by_a_message_when_another_gives_its_lease_back() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    let [holds, waits] = members(&store, &one()).await;
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let lease = holds.lease(AskLease::default()).await.expect("a lease");
        let waiting = waits.lease(AskLease::default());
        let waiting = tokio::spawn(waiting);
        sleep(Duration::from_millis(50)).await;
        assert!(!waiting.is_finished());
        let began = Instant::now();
        lease.end(Ended::Unsent);
        let lease = waiting.await.expect("no panic").expect("a lease");
        quickest = quickest.min(began.elapsed());
        lease.end(Ended::Unsent);
        waits.idle().await;
    }
    // By itself it would ask a second after it came.
    assert!(quickest < Duration::from_millis(400), "{quickest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_nobody_waits_for_any_more_goes_back_at_once() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    let ten = Duration::from_secs(10);
    let slow = Quota::new(NonZeroU32::MIN, ten).expect("some time");
    let [gone, other] = members(&store, &Limits::new(slow).rules(Rules::window())).await;
    // Its connection is there.
    let lease = gone.lease(AskLease::default()).await.expect("a lease");
    lease.end(Ended::Unsent);
    gone.idle().await;
    store.hang();
    let asks = gone.lease(AskLease::default());
    timeout(Duration::from_millis(200), asks)
        .await
        .expect_err("it hangs");
    let before = gone.status();
    store.go_on();
    let mut once = AskLease::default();
    once.max_wait = Some(ten - Duration::from_secs(1));
    let lease = other.lease(once).await.expect("it is free");
    lease.end(Ended::Unsent);
    other.idle().await;
    assert_eq!(other.status().live, 0, "{before:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_423s_that_one_hears_are_a_rung_for_another() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let [hears, other] = [(); 2].map(|()| join(&store));
    let mut leases = Vec::new();
    for _ in 0..3 {
        leases.push(hears.lease(AskLease::default()).await.expect("a lease"));
    }
    other.ready().await.expect("it grants");
    assert_eq!(other.status().rung, 0);
    for lease in leases {
        lease.end(Ended::Proven(Outcome::RateExceeded));
    }
    hears.idle().await;
    other.ready().await.expect("it grants");
    assert_eq!((other.status().rung, hears.status().rung), (1, 1));
}

/// Twenty-five want one at a time, and as many want up to forty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_unequal_members_all_begin_within_two_seconds() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    let limits = Limits::default();
    let members: [_; 50] = members(&store, &limits).await;
    for fleet in &members {
        fleet.idle().await;
    }
    let began = Instant::now();
    let ends = Duration::from_secs(8);
    let mut all = Vec::new();
    for (at, fleet) in members.iter().enumerate() {
        let wanted = if at % 2 == 0 { 1 } else { 40 };
        let wants = (0..wanted).map(|_| {
            let fleet = fleet.clone();
            tokio::spawn(async move {
                let mut granted = Vec::new();
                while let Ok(lease) = timeout(
                    ends.saturating_sub(began.elapsed()),
                    fleet.lease(AskLease::default()),
                )
                .await
                {
                    granted.push(began.elapsed());
                    sleep(Duration::from_millis(20)).await;
                    lease
                        .expect("a lease")
                        .end(Ended::Proven(Outcome::Answered));
                }
                granted
            })
        });
        all.push((wanted, wants.collect::<Vec<_>>()));
    }
    let (mut grants, mut shares) = (Vec::new(), Vec::new());
    for (member, (wanted, wants)) in all.into_iter().enumerate() {
        let mut granted = Vec::new();
        for wants in wants {
            granted.extend(wants.await.expect("no panic"));
        }
        shares.push((granted.len(), wanted));
        grants.extend(granted.into_iter().map(|at| (at, member)));
    }
    grants.sort_unstable();
    shares.sort_unstable();
    let told = format!("grants in {ends:?} {shares:?}, in order {grants:?}");
    // By the order of the grants: a hundred are two seconds of the quota, however long they take here.
    let begun: HashSet<_> = grants.iter().take(100).map(|(_, member)| member).collect();
    assert_eq!(begun.len(), 50, "{told}");
    assert!(shares[0].0 * 3 >= shares[49].0, "{told}");
}
