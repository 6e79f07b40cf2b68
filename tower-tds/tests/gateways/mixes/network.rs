//! The network between client and server: a relay that delays and cuts, and a socket that a kernel
//! gives up.

use std::{
    collections::HashSet,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use fastrand::Rng;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection, HttpConnector},
    rt::TokioIo,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    spawn,
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        watch,
    },
    time::{Instant, Sleep, sleep, sleep_until},
    try_join,
};
use tower::{BoxError, ServiceExt, service_fn, util::BoxCloneSyncService};

use super::mix::Mix;

pub(crate) struct Network {
    delay: Duration,
    times_out: Option<Duration>,
    is_cut: watch::Sender<bool>,
    /// Addresses of the client's sockets that its kernel has given up.
    given_up: Mutex<HashSet<SocketAddr>>,
}

/// A part of one direction of a connection, and when it is delivered.
type Parcel = (Instant, Part);

enum Part {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// A reset was delivered, or there is nothing to deliver to. Both sockets are dropped.
struct Gone;

// === impl Network ===

impl Network {
    /// Starts a relay to `server`, and returns its address.
    pub(crate) async fn start(mix: &Mix, server: SocketAddr) -> (Arc<Self>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let network = Arc::new(Self {
            delay: mix.delay,
            times_out: mix.times_out,
            is_cut: watch::Sender::new(false),
            given_up: Mutex::default(),
        });
        let relay = Arc::clone(&network);
        let mut rng = Rng::with_seed(mix.seed);
        spawn(async move {
            while let Ok((client, from)) = listener.accept().await {
                spawn(Arc::clone(&relay).carry(client, from, server, rng.fork()));
            }
        });
        if let Some((begins, length)) = mix.cut {
            let cut = Arc::clone(&network);
            spawn(async move {
                sleep(begins).await;
                cut.is_cut.send_replace(true);
                sleep(length).await;
                cut.is_cut.send_replace(false);
            });
        }
        (network, address)
    }

    async fn carry(
        self: Arc<Self>,
        client: TcpStream,
        from: SocketAddr,
        server: SocketAddr,
        mut rng: Rng,
    ) {
        let (from_client, to_client) = client.into_split();
        let (up, upward) = unbounded_channel();
        let (down, downward) = unbounded_channel();
        let mut rngs = [rng.fork(), rng.fork()];
        let [rng_up, rng_down] = &mut rngs;
        let carried = async {
            sleep(self.jitter(&mut rng)).await;
            // Nothing resends the first segment of a connect that was abandoned within a cut.
            if self.heals().await && (upward.is_closed() || self.is_given_up(from)) {
                return Err(Gone);
            }
            let (from_server, to_server) = TcpStream::connect(server).await?.into_split();
            let resets = Duration::from_millis(rng.u64(..LATEST_RESET));
            try_join!(
                self.collect(from_server, down, rng_down),
                self.deliver(downward, to_client, from, resets),
                self.deliver(upward, to_server, from, resets),
            )
        };
        try_join!(self.collect(from_client, up, rng_up), carried).ok();
    }

    /// Reads until the end or reset of one side.
    async fn collect(
        &self,
        mut from: OwnedReadHalf,
        to: UnboundedSender<Parcel>,
        rng: &mut Rng,
    ) -> Result<(), Gone> {
        let mut due = Instant::now();
        loop {
            let mut bytes = Vec::with_capacity(4_096);
            let part = match from.read_buf(&mut bytes).await {
                Ok(0) => Part::End,
                Ok(_) => Part::Bytes(bytes),
                Err(_) => Part::Reset,
            };
            let is_last = !matches!(part, Part::Bytes(_));
            // Parts of one direction stay in order.
            due = due.max(Instant::now() + self.jitter(rng));
            to.send((due, part)).ok();
            if is_last {
                return Ok(());
            }
        }
    }

    /// Delivers each part when it is due and no cut holds it. A client's socket that its kernel has
    /// given up delivers nothing more, and what is sent to it is reset after a while.
    async fn deliver(
        &self,
        mut parts: UnboundedReceiver<Parcel>,
        mut to: OwnedWriteHalf,
        from: SocketAddr,
        resets: Duration,
    ) -> Result<(), Gone> {
        while let Some((due, part)) = parts.recv().await {
            sleep_until(due).await;
            self.heals().await;
            let is_given_up = self.is_given_up(from);
            if is_given_up {
                sleep(resets).await;
            }
            match part {
                Part::Bytes(bytes) if !is_given_up => to.write_all(&bytes).await?,
                Part::End if !is_given_up => to.shutdown().await?,
                Part::Bytes(_) | Part::End | Part::Reset => {
                    to.as_ref().set_zero_linger()?;
                    return Err(Gone);
                }
            }
        }
        Ok(())
    }

    /// Waits for the end of a cut. Returns whether there was one.
    async fn heals(&self) -> bool {
        let mut cut = self.is_cut.subscribe();
        let was_cut = *cut.borrow();
        let healed = cut.wait_for(|is_cut| !is_cut).await;
        healed.expect("the sender lives");
        was_cut
    }

    fn jitter(&self, rng: &mut Rng) -> Duration {
        self.delay.mul_f64(rng.f64())
    }

    fn is_given_up(&self, client: SocketAddr) -> bool {
        let given_up = self.given_up.lock().expect("no holder panics");
        given_up.contains(&client)
    }

    /// A connector of this network, beneath the limit of sockets: hyper's, whose sockets time out
    /// in a cut as Linux does it with `TCP_USER_TIMEOUT`.
    pub(crate) fn connector(self: &Arc<Self>) -> BoxCloneSyncService<Uri, Socket, BoxError> {
        let network = Arc::clone(self);
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        BoxCloneSyncService::new(service_fn(move |uri: Uri| {
            let (network, tcp) = (Arc::clone(&network), tcp.clone());
            async move {
                let tcp = tcp.oneshot(uri).await?;
                let client = tcp.inner().local_addr()?;
                Ok(Socket {
                    tcp,
                    client,
                    network,
                    times_out: None,
                })
            }
        }))
    }
}

impl From<io::Error> for Gone {
    fn from(_: io::Error) -> Self {
        Self
    }
}

/// A client's socket, which its kernel gives up if what it writes in a cut is not acknowledged.
pub(crate) struct Socket {
    tcp: TokioIo<TcpStream>,
    client: SocketAddr,
    network: Arc<Network>,
    /// Since its first write of a cut.
    times_out: Option<Pin<Box<Sleep>>>,
}

// === impl Socket ===

impl Socket {
    /// Starts the timer of a write in a cut.
    fn writes(&mut self) {
        if let Some(after) = self.network.times_out
            && *self.network.is_cut.borrow()
        {
            self.times_out.get_or_insert_with(|| Box::pin(sleep(after)));
        }
    }

    /// Fails once the kernel has given the socket up.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(timer) = &mut self.times_out else {
            return Ok(());
        };
        if !*self.network.is_cut.borrow() && !self.network.is_given_up(self.client) {
            self.times_out = None;
        } else if timer.is_elapsed() || timer.as_mut().poll(cx).is_ready() {
            let mut given_up = self.network.given_up.lock().expect("no holder panics");
            given_up.insert(self.client);
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.tcp).poll_read(cx, buffer)
    }
}

impl Write for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writes();
        self.check(cx)?;
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writes();
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        self.tcp.connected()
    }
}

/// Milliseconds after a cut, within which a server's retransmissions reach a socket that was given
/// up.
const LATEST_RESET: u64 = 4_000;
