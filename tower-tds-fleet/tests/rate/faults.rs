//! Faults of the store: it dies, forgets, hangs.

use std::{
    fs,
    net::TcpListener,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tds_sim::{Rule, Server};
use tokio::{
    net::UnixListener,
    time::{Instant, sleep, timeout},
};
use tower_tds_fleet::{Fleet, WithoutStore};
use tower_tds_limits::{AskLease, Leases};

use crate::{
    RECOVERY, RedisServer, all_answered, bus, get, join, known, limits, member, member_with, quick,
    service, statuses,
};

/// By the ledger, when calls came.
fn arrivals(server: &Server) -> Vec<Duration> {
    let arrivals = server.ledger().arrivals();
    let mut arrivals: Vec<_> = arrivals.iter().map(|arrival| arrival.at).collect();
    arrivals.sort_unstable();
    arrivals
}

/// From each to the next.
fn gaps(server: &Server) -> Vec<Duration> {
    let arrivals = arrivals(server);
    arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// While calls go on, the store loses what it knew; whatever is granted after that was not granted
/// together with what was granted before.
async fn loses_its_memory(store: &mut RedisServer, lose: impl FnOnce(&mut RedisServer)) {
    let server = service(Rule::SlidingLogAll, quick()).await;
    let members: Vec<_> = (0..3).map(|_| member(store, &server)).collect();
    let calls = async { all_answered(&members, &server, 60).await };
    let began = Instant::now();
    let loss = async {
        sleep(Duration::from_millis(1_200)).await;
        lose(store);
    };
    tokio::join!(calls, loss);
    assert_eq!(statuses(&server), [(200, 180)].into());
    // By the ledger: nothing came in between.
    let longest = gaps(&server).into_iter().max().expect("many");
    assert!(
        longest > RECOVERY - Duration::from_millis(1_500),
        "{longest:?} of {:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_restarted_grants_nothing_until_all_leases_are_over() {
    let Some(mut store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    loses_its_memory(&mut store, |store| {
        store.kill();
        store.restart();
    })
    .await;
}

/// It knows all that it had granted, and not how long it was away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_restarted_with_its_data_grants_nothing_either() {
    let append = ["--appendonly", "yes", "--appendfsync", "always"];
    let Some(mut store) = RedisServer::start_with(|_| append.map(str::to_owned).to_vec()) else {
        return;
    };
    known(&store).await;
    loses_its_memory(&mut store, |store| {
        store.kill();
        store.restart();
        let mut kept = redis::cmd("HSTRLEN");
        let kept = kept.arg("{test}:quota").arg("numbers");
        let kept: usize = kept.query(&mut store.connection()).expect("a hash");
        assert_eq!(kept, 33 * 8);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_flushed_grants_nothing_until_all_leases_are_over() {
    let Some(mut store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    loses_its_memory(&mut store, |store| {
        redis::cmd("FLUSHALL")
            .query::<()>(&mut store.connection())
            .expect("it does");
    })
    .await;
}

/// Whoever comes to one of them comes to the other from now on, and whoever was there has to come again.
fn change_places(this: &RedisServer, that: &RedisServer) {
    let path = |store: &RedisServer| store.url().replace("redis+unix://", "");
    let connections = [this, that].map(RedisServer::connection);
    let (this, that) = (path(this), path(that));
    let aside = format!("{this}.aside");
    for (from, to) in [(&this, &aside), (&that, &this), (&aside, &that)] {
        fs::rename(from, to).expect("a socket");
    }
    for mut connection in connections {
        for of in ["normal", "pubsub"] {
            let mut kill = redis::cmd("CLIENT");
            kill.arg(&["KILL", "TYPE", of, "SKIPME", "yes"]);
            kill.exec(&mut connection).expect("it does");
        }
    }
}

/// The one and, when the fleet is led back, the other: it was never restarted, and has missed what was granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_stands_in_grants_nothing_until_all_leases_are_over_nor_does_its_master_then()
 {
    let mut port = String::new();
    let master = RedisServer::start_with(|_| {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        port = free.expect("a free one").port().to_string();
        vec!["--port".to_owned(), port.clone()]
    });
    let (Some(mut master), Some(replica)) = (master, RedisServer::start()) else {
        return;
    };
    known(&master).await;
    let mut replicate = redis::cmd("REPLICAOF");
    let replicate = replicate.arg("127.0.0.1").arg(&port);
    replicate.exec(&mut replica.connection()).expect("it does");
    let mut has_all = redis::cmd("WAIT");
    let has_all = has_all.arg(1).arg(20_000);
    let replicas: u32 = has_all.query(&mut master.connection()).expect("it waits");
    assert_eq!(replicas, 1);
    loses_its_memory(&mut master, |store| {
        let mut promote = redis::cmd("REPLICAOF");
        let promote = promote.arg("NO").arg("ONE");
        promote.exec(&mut replica.connection()).expect("it does");
        change_places(store, &replica);
    })
    .await;
    loses_its_memory(&mut master, |store| change_places(store, &replica)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_hangs_stops_all_and_goes_on_where_it_was() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let server = service(Rule::SlidingLogAll, quick()).await;
    let members: Vec<_> = (0..3).map(|_| member(&store, &server)).collect();
    let hang = async {
        for _ in 0..2 {
            sleep(Duration::from_millis(1_500)).await;
            store.hang();
            sleep(Duration::from_millis(3_000)).await;
            store.go_on();
        }
    };
    tokio::join!(all_answered(&members, &server, 80), hang);
    assert_eq!(statuses(&server), [(200, 240)].into());
    // What was granted before has come by then.
    let stops = gaps(&server).into_iter();
    let stops = stops.filter(|gap| *gap > Duration::from_millis(2_500));
    assert!((1..=3).contains(&stops.count()), "{:?}", gaps(&server));
}

#[tokio::test]
async fn without_a_store_a_call_is_told_so_when_its_wait_is_over() {
    let Some(mut store) = RedisServer::start() else {
        return;
    };
    let mut ask = AskLease::default();
    let fleet = join(&store);
    // It is there.
    ask.max_wait = Some(Duration::ZERO);
    let error = fleet.lease(ask).await.expect_err("it recovers");
    assert!(error.is_rejected(), "{error}");
    ask.max_wait = Some(Duration::from_millis(300));
    let error = fleet.lease(ask).await.expect_err("it recovers");
    assert!(error.is_timeout(), "{error}");
    store.kill();
    while fleet.status().away.is_none() {
        sleep(Duration::from_millis(20)).await;
    }
    let error = fleet.lease(ask).await.expect_err("it is away");
    assert!(
        error.to_string().contains("the store has been away for"),
        "{error}"
    );
    ask.max_wait = Some(Duration::ZERO);
    let error = fleet.lease(ask).await.expect_err("it is away");
    assert!(error.to_string().contains("nothing was sent"), "{error}");
    // Until nobody waits for anything: the thread ends.
    drop(fleet);
}

/// By how often the store was looked for meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_store_and_a_place_in_a_share_who_would_not_wait_is_told_so_at_once() {
    let Some(mut store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let share = NonZeroU32::new(25).expect("not 0");
    let mut fleets = Vec::new();
    for _ in 0..2 {
        let without = WithoutStore::Share(share);
        let fleet = Fleet::join_with(&store.url(), "test", &limits(), without).expect("a store");
        fleet.ready().await.expect("it grants");
        fleets.push(fleet);
    }
    let shares = fleets.iter().map(|fleet| fleet.status().has_share);
    assert_eq!(shares.collect::<Vec<_>>(), [true, false]);
    store.kill();
    fs::remove_file(store.socket()).expect("it was there");
    let socket = UnixListener::bind(store.socket()).expect("a free name");
    let looked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&looked);
    let counting = tokio::spawn(async move {
        while socket.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    for fleet in &fleets {
        while fleet.status().away.is_none() {
            sleep(Duration::from_millis(20)).await;
        }
        let before = looked.load(Ordering::Relaxed);
        let mut ask = AskLease::default();
        ask.max_wait = Some(Duration::ZERO);
        for _ in 0..30 {
            // The first of them may have a place at last.
            if let Err(error) = fleet.lease(ask).await {
                assert!(error.to_string().contains("nothing was sent"), "{error}");
            }
        }
        let meanwhile = looked.load(Ordering::Relaxed) - before;
        assert!(meanwhile < 20, "{meanwhile}");
    }
    counting.abort();
}

/// What is under way is ended while its lease still counts for as long as it can be counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_outlives_its_lease_is_ended() {
    let Some(mut store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let slow = tds_sim::Delay::Constant(Duration::from_secs(40));
    let server = service(Rule::SlidingLogAll, tds_sim::Delay::None).await;
    let mut faults = server.sim().faults();
    faults.before_head = slow;
    server.sim().set_faults(faults);
    let (client, fleet) = member(&store, &server);
    let call = tokio::spawn(get(client, bus(&server)));
    while server.ledger().summary().data_calls == 0 {
        sleep(Duration::from_millis(5)).await;
    }
    // Longer than a lease lives by itself: it is renewed.
    sleep(Duration::from_secs(12)).await;
    assert_eq!((fleet.status().held, call.is_finished()), (1, false));
    assert_eq!(server.ledger().summary().aborted, 0, "it was made again");
    store.kill();
    // It is made again, and there is no lease for that.
    let ends = async {
        while server.ledger().summary().aborted == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), ends)
        .await
        .expect("it is ended");
    // By the ledger: it was renewed after twelve seconds at the latest, and ten later it is over.
    let arrival = server.ledger().arrivals()[0].clone();
    let took = arrival.ended.expect("it has ended") - arrival.at;
    // The answer would come after forty.
    let bounds = Duration::from_secs(17)..Duration::from_secs(30);
    assert!(bounds.contains(&took), "{took:?}");
    assert_eq!(fleet.status().held, 0);
    call.abort();
}

/// Two members with a share each lose the store, and go on by that until it is back: the same server, which
/// has only been out of reach.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_with_shares_go_on_without_the_store_and_come_back() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let server = service(Rule::SlidingCounter, quick()).await;
    let share = WithoutStore::Share(NonZeroU32::new(12).expect("some"));
    let members: Vec<_> = (0..2)
        .map(|_| member_with(&store, &server, share))
        .collect();
    all_answered(&members, &server, 10).await;
    store.hang();
    // One at a time: it takes a tenth of a second for each, from when all leases are over.
    all_answered(&members, &server, 20).await;
    let alone = server.ledger().summary().data_calls;
    assert_eq!(alone, 60);
    let away = members
        .iter()
        .all(|(_, fleet)| fleet.status().away.is_some());
    assert!(away, "{members:?}");
    store.go_on();
    all_answered(&members, &server, 100).await;
    assert_eq!(statuses(&server), [(200, 260)].into());
    // By the ledger: their shares begin when all leases are over, and go at their pace; of three in a row two are one's.
    let came = arrivals(&server);
    assert!(
        came[20] - came[19] > RECOVERY - Duration::from_millis(1_500),
        "{came:?}"
    );
    let spaced = came[20..60].windows(3).map(|three| three[2] - three[0]);
    assert!(spaced.min() > Some(Duration::from_millis(50)), "{came:?}");
    assert!(
        members
            .iter()
            .all(|(_, fleet)| fleet.status().away.is_none())
    );
}
