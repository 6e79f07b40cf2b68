//! Members that are cut off from the store, beside others that are not.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    path::PathBuf,
    time::Duration,
};

use tds_sim::Rule;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UnixStream},
    sync::watch,
    task::JoinSet,
    time::sleep,
};
use tower_tds_fleet::WithoutStore;

use crate::{RECOVERY, RedisServer, get, known, member_at, quick, service, statuses};

/// A way to the store that can be cut: nothing passes, and nobody is told. What was on its way passes later, whoever
/// has stopped waiting for it.
struct Cable {
    address: SocketAddr,
    cut: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

// === impl Cable ===

impl Cable {
    async fn to(store: PathBuf) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("its own");
        let (cut, is_cut) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut ways = JoinSet::new();
            loop {
                let (member, _) = listener.accept().await.expect("a member");
                let (store, is_cut) = (store.clone(), is_cut.clone());
                ways.spawn(async move {
                    let store = UnixStream::connect(store).await.expect("a store");
                    let (from_member, to_member) = member.into_split();
                    let (from_store, to_store) = store.into_split();
                    let there = pass(from_member, to_store, is_cut.clone());
                    let back = pass(from_store, to_member, is_cut);
                    // Who has gone does not matter.
                    let _gone = tokio::join!(there, back);
                });
            }
        });
        Self {
            address,
            cut,
            _tasks: tasks,
        }
    }

    fn url(&self) -> String {
        format!("redis://{}", self.address)
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
        to.write_all(bytes.get(..read).expect("so many")).await?;
    }
}

/// Two of four members are cut off twice, each time until after they have begun to use their shares.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_are_cut_off_use_their_shares_beside_the_others() {
    let Some(store) = RedisServer::start() else {
        return;
    };
    known(&store).await;
    let cable = Cable::to(store.socket()).await;
    let server = service(Rule::SlidingCounter, quick()).await;
    let share = WithoutStore::Share(NonZeroU32::new(6).expect("some"));
    let urls = [cable.url(), cable.url(), store.url(), store.url()];
    let members = urls.map(|url| member_at(&url, &server, share));
    let mut calls = JoinSet::new();
    for (who, (client, _)) in members.iter().enumerate() {
        for _ in 0..10 {
            let client = client.clone();
            let url = format!("{}/v1/live/member{who}", server.base_url());
            calls.spawn(async move {
                loop {
                    get(client.clone(), url.clone()).await.expect("an answer");
                }
            });
        }
    }
    sleep(Duration::from_secs(3)).await;
    let mut cuts = Vec::new();
    for _ in 0..2 {
        cuts.push(server.ledger().summary().data_calls);
        cable.cut.send_replace(true);
        sleep(RECOVERY + Duration::from_secs(5)).await;
        cuts.push(server.ledger().summary().data_calls);
        cable.cut.send_replace(false);
        sleep(Duration::from_secs(6)).await;
    }
    calls.shutdown().await;
    let seen = statuses(&server);
    assert_eq!(seen.keys().collect::<Vec<_>>(), [&200], "{seen:?}");
    let arrivals = server.ledger().arrivals();
    let of = |who: &str, range: &[u64]| {
        let range = range.iter().map(|at| usize::try_from(*at).expect("few"));
        let range: Vec<_> = range.collect();
        let arrivals = arrivals.get(range[0]..range[1]).expect("so many");
        arrivals
            .iter()
            .filter(|arrival| arrival.target.ends_with(who))
            .count()
    };
    for cut in cuts.chunks(2) {
        let sent = ["member0", "member1", "member2", "member3"].map(|who| of(who, cut));
        println!("while two of them are cut off: {sent:?}");
        // Half of it is the wait until the shares begin.
        assert!(sent[0] >= 15 && sent[1] >= 15, "{sent:?}");
        assert!(sent[2] >= 150 && sent[3] >= 150, "{sent:?}");
    }
}
