//! A server that counts its sockets. It answers every request, and has no other limits.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use http::Uri;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex},
    net::TcpListener,
    sync::watch,
    task::JoinHandle,
};

pub(crate) const BODY: &str = "bus 307";

#[derive(Clone)]
pub(crate) struct Server {
    uri: Uri,
    counts: Arc<Counts>,
    accepting: Option<Arc<JoinHandle<()>>>,
}

struct Counts {
    requests: AtomicU32,
    peak: AtomicU32,
    sockets: watch::Sender<Sockets>,
    lingering: watch::Sender<bool>,
    held: watch::Sender<bool>,
    barrier: watch::Sender<Barrier>,
    /// Connections of another client.
    strangers: AtomicU32,
    allows: Mutex<Option<Allows>>,
    /// Requests that are being answered.
    in_process: AtomicU32,
    refused: AtomicU32,
}

/// Which connections a gateway counts, up to [`ALLOWED`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allows {
    /// Counts open connections, as `HAProxy` does. If there are too many, it refuses the requests
    /// of all of them.
    Open,
    /// Counts connections with a request in process, as nginx does.
    InProcess,
}

/// Contract, "Limits": 60 parallel connections.
const ALLOWED: u32 = 60;

#[derive(Default)]
struct Sockets {
    opened: u32,
    /// Ended by the client.
    ended: u32,
    /// Closed on this side too, or about to be.
    closed: u32,
}

/// Number of requests that have to arrive before one is answered.
struct Barrier {
    arrived: u32,
    together: u32,
}

// === impl Server ===

impl Server {
    /// Listens on a port of this machine.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let mut server = Self::in_process(&address.to_string());
        let counts = Arc::clone(&server.counts);
        server.accepting = Some(Arc::new(tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("loopback accepts");
                counts.accept(socket);
            }
        })));
        server
    }

    /// A server without sockets: a client gets one end of a pipe, so a paused clock works.
    pub(crate) fn in_process(name: &str) -> Self {
        let counts = Arc::new(Counts {
            requests: AtomicU32::new(0),
            peak: AtomicU32::new(0),
            sockets: watch::Sender::new(Sockets::default()),
            lingering: watch::Sender::new(false),
            held: watch::Sender::new(true),
            barrier: watch::Sender::new(Barrier {
                arrived: 0,
                together: 0,
            }),
            strangers: AtomicU32::new(0),
            allows: Mutex::new(None),
            in_process: AtomicU32::new(0),
            refused: AtomicU32::new(0),
        });
        Self {
            uri: format!("http://{name}/").parse().expect("a URI"),
            counts,
            accepting: None,
        }
    }

    pub(crate) fn connect(&self) -> DuplexStream {
        let (client, server) = duplex(16 * 1024);
        self.counts.accept(server);
        client
    }

    pub(crate) fn uri(&self) -> Uri {
        self.uri.clone()
    }

    /// An address whose response is special: see [`answer`].
    pub(crate) fn at(&self, path: &str) -> Uri {
        let authority = self.uri.authority().expect("it has one");
        format!("http://{authority}{path}").parse().expect("a URI")
    }

    /// Stops listening. Returns the address, which now refuses connects.
    pub(crate) async fn stop(self) -> Uri {
        let accepting = self.accepting.and_then(Arc::into_inner);
        let accepting = accepting.expect("it listens");
        accepting.abort();
        let stopped = accepting.await.expect_err("it listens for ever");
        assert!(stopped.is_cancelled());
        self.uri
    }

    /// From now on refuses connections as a gateway.
    pub(crate) fn allow(&self, allows: Allows) {
        *self.counts.allows.lock().expect("no panic") = Some(allows);
    }

    /// Sets the number of connections of another client.
    pub(crate) fn visit(&self, strangers: u32) {
        self.counts.strangers.store(strangers, SeqCst);
    }

    pub(crate) fn refused(&self) -> u32 {
        self.counts.refused.load(SeqCst)
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

    /// Waits until this many clients have ended their side.
    pub(crate) async fn seen_ends(&self, ends: u32) {
        let mut sockets = self.counts.sockets.subscribe();
        let seen = sockets.wait_for(|sockets| sockets.ended >= ends).await;
        drop(seen.expect("the counts live as long as the server"));
    }

    /// Waits until this many requests are there.
    pub(crate) async fn seen_requests(&self, requests: u32) {
        let mut barrier = self.counts.barrier.subscribe();
        let seen = barrier
            .wait_for(|barrier| barrier.arrived >= requests)
            .await;
        drop(seen.expect("the counts live as long as the server"));
    }

    /// From now on the server notices the end of a client's side, and does not close its own.
    pub(crate) fn close_slowly(&self) {
        self.counts.lingering.send_replace(true);
    }

    pub(crate) fn close_at_once(&self) {
        self.counts.lingering.send_replace(false);
    }

    /// Sends what is held back.
    pub(crate) fn release(&self) {
        self.counts.held.send_replace(false);
    }

    /// From now on answers only when `requests` requests have arrived, and then answers all of
    /// them.
    pub(crate) fn answer_together(&self, requests: u32) {
        self.counts.barrier.send_modify(|barrier| {
            *barrier = Barrier {
                arrived: 0,
                together: requests,
            };
        });
    }
}

// === impl Counts ===

impl Counts {
    /// Whether there are too many connections while this connection's request is in process.
    fn is_over(&self) -> bool {
        let strangers = self.strangers.load(SeqCst);
        let allows = *self.allows.lock().expect("no panic");
        match allows {
            None => false,
            Some(Allows::Open) => {
                let sockets = self.sockets.borrow();
                sockets.opened - sockets.closed + strangers > ALLOWED
            }
            Some(Allows::InProcess) => self.in_process.load(SeqCst) + strangers > ALLOWED,
        }
    }

    fn accept(self: &Arc<Self>, mut socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        self.sockets.send_modify(|sockets| {
            sockets.opened += 1;
            self.peak.fetch_max(sockets.opened - sockets.closed, SeqCst);
        });
        let counts = Arc::clone(self);
        tokio::spawn(async move {
            let _ended: io::Result<()> = serve(&mut socket, &counts).await;
            counts.sockets.send_modify(|sockets| sockets.ended += 1);
            let mut lingering = counts.lingering.subscribe();
            let over = lingering.wait_for(|lingering| !lingering).await;
            drop(over.expect("the counts live as long as the server"));
            // It is counted until right before the close, as at gateways.
            counts.sockets.send_modify(|sockets| sockets.closed += 1);
            drop(socket);
        });
    }

    /// Waits until what is held back may go, or until the client has ended its side.
    async fn released<S: AsyncRead + Unpin>(&self, socket: &mut S) -> io::Result<()> {
        let mut held = self.held.subscribe();
        tokio::select! {
            released = held.wait_for(|held| !held) => {
                drop(released.expect("the counts live as long as the server"));
                Ok(())
            }
            ended = socket.read_u8() => Err(ended.expect_err("one request at a time")),
        }
    }
}

/// Sends one response for each blank line. No request has a body.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut S,
    counts: &Counts,
) -> io::Result<()> {
    let mut seen = Vec::new();
    loop {
        if socket.read_buf(&mut seen).await? == 0 {
            return Ok(());
        }
        while let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
            let head: Vec<u8> = seen.drain(..end + 4).collect();
            let path = head.split(|byte| *byte == b' ').nth(1);
            let path = str::from_utf8(path.unwrap_or_default()).unwrap_or_default();
            counts.requests.fetch_add(1, SeqCst);
            counts.barrier.send_modify(|barrier| barrier.arrived += 1);
            let mut barrier = counts.barrier.subscribe();
            let together = barrier.wait_for(|b| b.arrived >= b.together).await;
            drop(together.expect("the counts live as long as the server"));
            counts.in_process.fetch_add(1, SeqCst);
            let then = if counts.is_over() {
                counts.refused.fetch_add(1, SeqCst);
                answer(socket, "/too-many", counts).await
            } else {
                answer(socket, path, counts).await
            };
            counts.in_process.fetch_sub(1, SeqCst);
            match then? {
                Then::Next => {}
                Then::Close => return Ok(()),
                Then::ReadToTheEnd => {
                    seen.clear();
                    while socket.read_buf(&mut seen).await? > 0 {
                        seen.clear();
                    }
                    return Ok(());
                }
            }
        }
    }
}

enum Then {
    Next,
    Close,
    ReadToTheEnd,
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut S,
    path: &str,
    counts: &Counts,
) -> io::Result<Then> {
    let length = BODY.len();
    let (first, second) = BODY.split_at(3);
    match path {
        // Sends the head at once, and the body when it is released.
        "/held" => {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{first}");
            socket.write_all(head.as_bytes()).await?;
            counts.released(socket).await?;
            socket.write_all(second.as_bytes()).await?;
        }
        // Sends the body a tenth of a second later.
        "/slow" => {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{BODY}");
            socket.write_all(whole.as_bytes()).await?;
        }
        "/second" => {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(500..1_500))).await;
            let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{BODY}");
            socket.write_all(whole.as_bytes()).await?;
        }
        // Sends no byte before the release.
        "/late" => {
            counts.released(socket).await?;
            let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{BODY}");
            socket.write_all(whole.as_bytes()).await?;
        }
        // Sends a body that ends with the connection.
        "/until-close" => {
            let head = format!("HTTP/1.1 200 OK\r\n\r\n{first}");
            socket.write_all(head.as_bytes()).await?;
            counts.released(socket).await?;
            socket.write_all(second.as_bytes()).await?;
            return Ok(Then::Close);
        }
        "/too-many" => {
            let whole = format!("HTTP/1.1 416 Too Many\r\nContent-Length: {length}\r\n\r\n{BODY}");
            socket.write_all(whole.as_bytes()).await?;
        }
        // From here on the connection speaks another protocol.
        "/upgrade" => {
            let head = "HTTP/1.1 101 Switching Protocols\r\n\
                        Connection: upgrade\r\nUpgrade: telex\r\n\r\n";
            socket.write_all(head.as_bytes()).await?;
            return Ok(Then::ReadToTheEnd);
        }
        _ => {
            let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{BODY}");
            socket.write_all(whole.as_bytes()).await?;
        }
    }
    Ok(Then::Next)
}
