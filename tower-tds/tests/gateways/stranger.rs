//! A stranger behind the same address, which takes connections of the limit for a while.

use std::{
    fmt::{self, Display},
    net::SocketAddr,
    time::Duration,
};

use http::header::AUTHORIZATION;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    gateway::Kind,
    load::{self, Load},
    log::Log,
    program::say,
};

/// One run during which a stranger comes and goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visit {
    pub(crate) gateway: Kind,
    pub(crate) comes: Comes,
    /// How many connections the stranger takes, and for how long.
    pub(crate) sockets: u32,
    pub(crate) stays: Duration,
    /// The number of calls: enough for the stranger's visit, and some more.
    pub(crate) calls: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comes {
    /// Before the first call.
    First,
    /// When the calls hold all connections.
    Later,
}

/// The result of a visit.
pub(crate) struct Visited {
    visit: Visit,
    pub(crate) log: Log,
    pub(crate) lost: Vec<String>,
    /// The lines after the stranger had gone.
    pub(crate) after: Log,
}

// === impl Visit ===

impl Visit {
    pub(crate) async fn run(self) -> Option<Visited> {
        let (service, gateway) = self.gateway.start().await?;
        let token = service.sim().token(service.client_id()).expect("a token");
        let client = load::client(&service, gateway.address());
        let (address, calls) = (gateway.address(), self.calls);
        let (first, second) = match self.comes {
            Comes::First => (Duration::ZERO, LATER),
            Comes::Later => (LATER, Duration::ZERO),
        };
        let made = async {
            sleep(second).await;
            load::drive(client, address, Load::Long, calls).await
        };
        let visit = async {
            sleep(first).await;
            self.stay(address, &token).await;
            // A gateway on a busy machine counts its sockets for a while longer.
            sleep(Duration::from_secs(2)).await;
            // The time by the gateway's clock, as its log shows it.
            gateway.log(0).await.last().unwrap_or_default()
        };
        let (lost, gone) = tokio::join!(made, visit);
        let log = gateway.log(calls as usize).await;
        let visited = Visited {
            visit: self,
            after: log.since(gone),
            log,
            lost,
        };
        say(&visited.to_string());
        Some(visited)
    }

    /// Holds connections, each with a request in process after it is accepted.
    async fn stay(self, gateway: SocketAddr, token: &str) {
        let until = Instant::now() + self.stays;
        // The length of the visit, and one more second.
        let bytes = (self.stays.as_secs() + 1) * 10_000;
        let mut sockets = JoinSet::new();
        let pause = AGAIN * self.sockets;
        for _ in 0..self.sockets {
            let request = format!(
                "GET /v1/history/long?bytes={bytes}&rate=10000 HTTP/1.1\r\nHost: {gateway}\r\n\
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
                    let again = Instant::now() + pause;
                    if !status.ends_with(b"200") {
                        sleep_until(again.min(until)).await;
                        // Until the gateway has ended it as well, the next socket would be one more.
                        socket.shutdown().await.ok();
                        tokio::io::copy(&mut socket, &mut tokio::io::sink())
                            .await
                            .ok();
                        continue;
                    }
                    // Reads, because the gateway would close a connection that does not.
                    let mut rest = tokio::io::sink();
                    let read = tokio::io::copy(&mut socket, &mut rest);
                    drop(tokio::time::timeout_at(until, read).await);
                }
            });
        }
        sockets.join_all().await;
    }
}

impl Display for Visited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lost, after) = (self.lost.len(), &self.after);
        write!(
            f,
            "{:?}: {}, {lost} lost; after: {after}",
            self.visit, self.log
        )
    }
}

/// The word that marks the stranger's requests.
pub(crate) const STRANGER: &str = "stranger";

/// The head start, in which the first client gets all the connections that it wants.
const LATER: Duration = Duration::from_secs(2);

/// The wait of a refused stranger before its next try, for each of its sockets: 20 tries a second,
/// which leave as much of the rate as the calls need.
const AGAIN: Duration = Duration::from_millis(50);
