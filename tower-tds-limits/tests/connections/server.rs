//! A server that counts its sockets. It answers every request, and knows nothing else.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use http::Uri;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

pub(crate) const BODY: &str = "bus 307";

pub(crate) struct Server {
    uri: Uri,
    counts: Arc<Counts>,
    accepting: JoinHandle<()>,
}

struct Counts {
    requests: AtomicU32,
    peak: AtomicU32,
    /// Sockets opened and sockets closed.
    sockets: watch::Sender<(u32, u32)>,
    barrier: watch::Sender<Barrier>,
}

/// How many requests have to be there before one is answered.
struct Barrier {
    arrived: u32,
    together: u32,
}

// === impl Server ===

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let counts = Arc::new(Counts {
            requests: AtomicU32::new(0),
            peak: AtomicU32::new(0),
            sockets: watch::Sender::new((0, 0)),
            barrier: watch::Sender::new(Barrier {
                arrived: 0,
                together: 0,
            }),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&counts)));
        Self {
            uri: format!("http://{address}/").parse().expect("a URI"),
            counts,
            accepting,
        }
    }

    pub(crate) fn uri(&self) -> Uri {
        self.uri.clone()
    }

    /// Stops listening; gives the address where nobody listens now.
    pub(crate) async fn stop(self) -> Uri {
        self.accepting.abort();
        let stopped = self.accepting.await.expect_err("it listens for ever");
        assert!(stopped.is_cancelled());
        self.uri
    }

    pub(crate) fn requests(&self) -> u32 {
        self.counts.requests.load(SeqCst)
    }

    pub(crate) fn peak_sockets(&self) -> u32 {
        self.counts.peak.load(SeqCst)
    }

    /// Waits until so many sockets have been closed.
    pub(crate) async fn closed_sockets(&self, closed: u32) {
        let mut sockets = self.counts.sockets.subscribe();
        let seen = sockets.wait_for(|(_, now)| *now >= closed).await;
        drop(seen.expect("the counts live as long as the server"));
    }

    /// From now on answers only when so many requests are there, and then all of them.
    pub(crate) fn answer_together(&self, requests: u32) {
        self.counts.barrier.send_modify(|barrier| {
            *barrier = Barrier {
                arrived: 0,
                together: requests,
            };
        });
    }
}

async fn accept(listener: TcpListener, counts: Arc<Counts>) {
    loop {
        let (socket, _) = listener.accept().await.expect("loopback accepts");
        counts.sockets.send_modify(|(opened, closed)| {
            *opened += 1;
            counts.peak.fetch_max(*opened - *closed, SeqCst);
        });
        let counts = Arc::clone(&counts);
        tokio::spawn(async move {
            let _ended: std::io::Result<()> = serve(socket, &counts).await;
            counts.sockets.send_modify(|(_, closed)| *closed += 1);
        });
    }
}

/// One answer for each blank line; the requests of these tests have no bodies.
async fn serve(mut socket: TcpStream, counts: &Counts) -> std::io::Result<()> {
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    let mut seen = Vec::new();
    loop {
        if socket.read_buf(&mut seen).await? == 0 {
            return Ok(());
        }
        while let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
            seen.drain(..end + 4);
            counts.requests.fetch_add(1, SeqCst);
            counts.barrier.send_modify(|barrier| barrier.arrived += 1);
            let mut barrier = counts.barrier.subscribe();
            let together = barrier.wait_for(|b| b.arrived >= b.together).await;
            drop(together.expect("the counts live as long as the server"));
            socket.write_all(answer.as_bytes()).await?;
        }
    }
}
