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
    sockets: watch::Sender<Sockets>,
    lingering: watch::Sender<bool>,
    barrier: watch::Sender<Barrier>,
}

#[derive(Default)]
struct Sockets {
    opened: u32,
    /// Ended by the client.
    ended: u32,
    /// Closed on this side too, or about to be.
    closed: u32,
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
            sockets: watch::Sender::new(Sockets::default()),
            lingering: watch::Sender::new(false),
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

    pub(crate) fn opened_sockets(&self) -> u32 {
        self.counts.sockets.borrow().opened
    }

    pub(crate) fn open_sockets(&self) -> u32 {
        let sockets = self.counts.sockets.borrow();
        sockets.opened - sockets.closed
    }

    /// Waits until so many clients have ended their side.
    pub(crate) async fn seen_ends(&self, ends: u32) {
        let mut sockets = self.counts.sockets.subscribe();
        let seen = sockets.wait_for(|sockets| sockets.ended >= ends).await;
        drop(seen.expect("the counts live as long as the server"));
    }

    /// From now on a client's end is seen and not answered.
    pub(crate) fn close_slowly(&self) {
        self.counts.lingering.send_replace(true);
    }

    pub(crate) fn close_at_once(&self) {
        self.counts.lingering.send_replace(false);
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
        let (mut socket, _) = listener.accept().await.expect("loopback accepts");
        counts.sockets.send_modify(|sockets| {
            sockets.opened += 1;
            counts
                .peak
                .fetch_max(sockets.opened - sockets.closed, SeqCst);
        });
        let counts = Arc::clone(&counts);
        tokio::spawn(async move {
            let _ended: std::io::Result<()> = serve(&mut socket, &counts).await;
            counts.sockets.send_modify(|sockets| sockets.ended += 1);
            let mut lingering = counts.lingering.subscribe();
            let over = lingering.wait_for(|lingering| !lingering).await;
            drop(over.expect("the counts live as long as the server"));
            // Forgotten no later than it says goodbye, as gateways do.
            counts.sockets.send_modify(|sockets| sockets.closed += 1);
            drop(socket);
        });
    }
}

/// One answer for each blank line; the requests of these tests have no bodies.
async fn serve(socket: &mut TcpStream, counts: &Counts) -> std::io::Result<()> {
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
