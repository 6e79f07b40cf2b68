//! Members that are cut off from the store, or far from it.

use std::{io, net::Ipv4Addr, path::PathBuf, time::Duration};

use redis::Client;
use tds_sim::{Delay, Network, Relay, Rule};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UnixStream},
    sync::watch,
    task::JoinSet,
    time::sleep,
};
use tower_tds::Limits;

use crate::shares::{
    Member, RedisServer, assert_clean, faults::through, on_a_port, reaches, remember, service,
};

/// A relay to the store that can be cut in each direction. Bytes in between pass later.
struct Cable {
    url: String,
    there: watch::Sender<bool>,
    back: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

// === impl Cable ===

impl Cable {
    async fn to(store: PathBuf) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let ((there, is_cut_there), (back, is_cut_back)) =
            (watch::channel(false), watch::channel(false));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut ways = JoinSet::new();
            loop {
                let (member, _) = listener.accept().await.unwrap();
                let (store, there, back) =
                    (store.clone(), is_cut_there.clone(), is_cut_back.clone());
                ways.spawn(async move {
                    let store = UnixStream::connect(store).await.unwrap();
                    let (from_member, to_member) = member.into_split();
                    let (from_store, to_store) = store.into_split();
                    let there = pass(from_member, to_store, there);
                    let back = pass(from_store, to_member, back);
                    let _gone = tokio::join!(there, back);
                });
            }
        });
        let _tasks = tasks;
        Self {
            url,
            there,
            back,
            _tasks,
        }
    }

    fn client(&self) -> Client {
        Client::open(self.url.as_str()).unwrap()
    }
}

async fn pass(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut is_cut: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut bytes = [0; 4_096];
    loop {
        let read = from.read(&mut bytes).await?;
        drop(is_cut.wait_for(|is_cut| !is_cut).await);
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&bytes[..read]).await?;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn members_cut_off_from_the_store_cause_no_refusal() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    remember(&store);
    let cable = Cable::to(store.socket()).await;
    through(
        "cut there, back, both for 9 s each",
        cable.client(),
        Rule::SlidingCounter,
        12,
        async || {
            for (there, back) in [(true, false), (false, true), (true, true)] {
                cable.there.send_replace(there);
                cable.back.send_replace(back);
                sleep(Duration::from_secs(9)).await;
                cable.there.send_replace(false);
                cable.back.send_replace(false);
                sleep(Duration::from_secs(6)).await;
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connected_members_take_over_the_shares_of_two_cut_off() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    remember(&store);
    let cable = Cable::to(store.socket()).await;
    let server = service(Rule::SlidingCounter).await;
    let clients = [
        cable.client(),
        cable.client(),
        store.client(),
        store.client(),
    ];
    let members = clients.map(|client| Member::join(client, &server, Limits::default()));
    let mut running = JoinSet::new();
    for member in &members {
        member.call(8, &mut running);
    }
    sleep(Duration::from_secs(5)).await;
    cable.there.send_replace(true);
    sleep(Duration::from_secs(22)).await;
    let took = reaches(&server, 34, 3).await;
    cable.there.send_replace(false);
    sleep(Duration::from_secs(5)).await;
    running.shutdown().await;
    assert_clean(&server);
    println!("two of four cut off: {took:.1?} later the others have had 34 a second for 3 s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more"]
async fn slow_store_keeps_85_percent_of_the_throughput() {
    let Some((store, address)) = on_a_port() else {
        return;
    };
    let mut rates = Vec::new();
    for millis in [0, 50, 200, 500, 1_000] {
        remember(&store);
        let mut network = Network::default();
        // Waits for the round trip.
        network.there = Delay::Constant(Duration::from_millis(millis / 2));
        network.back = network.there;
        let relay = Relay::start(address.parse().unwrap(), network)
            .await
            .unwrap();
        let client = Client::open(format!("redis://{}", relay.address())).unwrap();
        let server = service(Rule::SlidingCounter).await;
        let members: Vec<_> = (0..4)
            .map(|_| Member::join(client.clone(), &server, Limits::default()))
            .collect();
        let mut running = JoinSet::new();
        for member in &members {
            member.call(8, &mut running);
        }
        sleep(Duration::from_secs(8)).await;
        let before = assert_clean(&server);
        sleep(Duration::from_secs(8)).await;
        rates.push((assert_clean(&server) - before) / 8);
        running.shutdown().await;
        for member in &members {
            member.fleet.leave().await;
        }
    }
    println!("requests a second with a store 0, 50, 200, 500, 1000 ms away: {rates:?}");
    assert!(
        rates.iter().all(|rate| *rate * 100 >= rates[0] * 85),
        "{rates:?}"
    );
}
