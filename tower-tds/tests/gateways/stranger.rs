//! Somebody else behind the same address, who takes connections of the limit for a while.

use std::{
    fmt::{self, Display},
    net::SocketAddr,
    time::Duration,
};

use http::header::AUTHORIZATION;
use tds_sim::Server;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    gateway::Kind,
    load::{self, Caller, Load},
    log::Log,
    program::say,
};

/// One run during which somebody else comes and goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visit {
    pub(crate) gateway: Kind,
    pub(crate) comes: Comes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comes {
    /// Before the first call.
    First,
    /// When the calls hold all connections.
    Later,
}

/// How it went.
pub(crate) struct Visited {
    visit: Visit,
    pub(crate) log: Log,
    pub(crate) lost: Vec<String>,
    /// What came after the stranger had gone.
    pub(crate) after: Log,
}

// === impl Visit ===

impl Visit {
    pub(crate) async fn run<C: Caller>(
        self,
        client: impl FnOnce(&Server, SocketAddr) -> C,
    ) -> Option<Visited> {
        let (service, gateway) = self.gateway.start().await?;
        let token = service.sim().token(service.client_id()).expect("a token");
        let client = client(&service, gateway.address());
        let (first, second) = match self.comes {
            Comes::First => (Duration::ZERO, LATER),
            Comes::Later => (LATER, Duration::ZERO),
        };
        let calls = async {
            sleep(second).await;
            load::drive(client, gateway.address(), Load::Long, CALLS).await
        };
        let visit = async {
            sleep(first).await;
            stay(gateway.address(), &token).await;
            // By the gateway's clock, as far as its log tells.
            gateway.log(0).await.last().unwrap_or_default()
        };
        let (lost, gone) = tokio::join!(calls, visit);
        let log = gateway.log(CALLS as usize).await;
        let visited = Visited {
            visit: self,
            after: log.since(gone),
            log,
            lost,
        };
        say(&visited.to_string());
        Some(visited)
    }
}

/// Holds so many connections, each with a request in process once it is let in.
async fn stay(gateway: SocketAddr, token: &str) {
    let until = Instant::now() + STAYS;
    let mut sockets = JoinSet::new();
    for _ in 0..SOCKETS {
        let request = format!(
            "GET /v1/history/long?bytes=1000000&rate=10000 HTTP/1.1\r\nHost: {gateway}\r\n\
             User-Agent: {STRANGER}\r\n{AUTHORIZATION}: Bearer {token}\r\n\r\n"
        );
        sockets.spawn(async move {
            while Instant::now() < until {
                let mut socket = TcpStream::connect(gateway).await.expect("it listens");
                socket
                    .write_all(request.as_bytes())
                    .await
                    .expect("a socket");
                let mut status = [0; "HTTP/1.1 200".len()];
                socket.read_exact(&mut status).await.expect("an answer");
                let again = Instant::now() + AGAIN;
                let let_in = status.ends_with(b"200");
                sleep_until(if let_in { until } else { again.min(until) }).await;
            }
        });
    }
    sockets.join_all().await;
}

impl Display for Visited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Visit { gateway, comes } = self.visit;
        write!(
            f,
            "{gateway:?}, a stranger with {SOCKETS} sockets for {STAYS:?}, {comes:?}: {} x 200, \
             {} x 423, {} x 416, {} lost; after that {} x 416, {} sockets",
            self.log.count(200),
            self.log.count(423),
            self.log.count(416),
            self.lost.len(),
            self.after.count(416),
            self.after.most_sockets(),
        )
    }
}

/// How the stranger's requests are told from others.
pub(crate) const STRANGER: &str = "stranger";

/// How many connections the stranger takes.
pub(crate) const SOCKETS: u32 = 10;

const STAYS: Duration = Duration::from_secs(6);

/// In which whoever comes first has all the connections that it wants.
const LATER: Duration = Duration::from_secs(2);

/// How soon a stranger who was refused tries again.
const AGAIN: Duration = Duration::from_millis(500);

/// Enough to hold all connections for twice as long as the stranger stays.
const CALLS: u32 = 240;
