//! Members that are cut off from the store, or far from it.

use std::{io, net::Ipv4Addr, path::PathBuf, time::Duration};

use redis::Client;
use tds_sim::Rule;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UnixStream},
    sync::watch,
    task::JoinSet,
    time::sleep,
};
use tower_tds::Limits;

use crate::shares::{Member, RedisServer, assert_clean, reaches, remember, service};

/// A relay to the store that can be cut. Bytes in between pass later.
struct Cable {
    url: String,
    cut: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

// === impl Cable ===

impl Cable {
    async fn to(store: PathBuf) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let (cut, is_cut) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut ways = JoinSet::new();
            loop {
                let (member, _) = listener.accept().await.unwrap();
                let (store, is_cut) = (store.clone(), is_cut.clone());
                ways.spawn(async move {
                    let store = UnixStream::connect(store).await.unwrap();
                    let (from_member, to_member) = member.into_split();
                    let (from_store, to_store) = store.into_split();
                    let there = pass(from_member, to_store, is_cut.clone());
                    let back = pass(from_store, to_member, is_cut);
                    let _gone = tokio::join!(there, back);
                });
            }
        });
        let _tasks = tasks;
        Self { url, cut, _tasks }
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
    cable.cut.send_replace(true);
    sleep(Duration::from_secs(22)).await;
    let took = reaches(&server, 34, 3).await;
    cable.cut.send_replace(false);
    sleep(Duration::from_secs(5)).await;
    running.shutdown().await;
    assert_clean(&server);
    println!("two of four cut off: {took:.1?} later the others have had 34 a second for 3 s");
}
