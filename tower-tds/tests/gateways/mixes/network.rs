//! The network between client and server: a relay that delays and cuts. A kernel that gives a socket up in a cut is in
//! `tower-tds-limits/tests/connections/cut.rs`.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use fastrand::Rng;
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
    time::{Instant, sleep, sleep_until},
    try_join,
};

use super::mix::Mix;

pub(crate) struct Network {
    delay: Duration,
    is_cut: watch::Sender<bool>,
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
    pub(crate) async fn start(mix: &Mix, server: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind(super::OWN).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let network = Arc::new(Self {
            delay: mix.delay,
            is_cut: watch::Sender::new(false),
        });
        let relay = Arc::clone(&network);
        let mut rng = Rng::with_seed(mix.seed);
        spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                spawn(Arc::clone(&relay).carry(client, server, rng.fork()));
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
        address
    }

    async fn carry(self: Arc<Self>, client: TcpStream, server: SocketAddr, mut rng: Rng) {
        let (from_client, to_client) = client.into_split();
        let (up, upward) = unbounded_channel();
        let (down, downward) = unbounded_channel();
        let (mut rng_up, mut rng_down) = (rng.fork(), rng.fork());
        let carried = async {
            sleep(self.jitter(&mut rng)).await;
            if self.heals().await {
                // Nothing resends the first segment of a connect that was abandoned within a cut.
                if upward.is_closed() {
                    return Err(Gone);
                }
                // Earlier bytes that were cut as well arrive before it.
                sleep(self.jitter(&mut rng)).await;
            }
            let (from_server, to_server) = TcpStream::connect(server).await?.into_split();
            try_join!(
                self.collect(from_server, down, &mut rng_down),
                self.deliver(downward, to_client),
                self.deliver(upward, to_server),
            )
        };
        try_join!(self.collect(from_client, up, &mut rng_up), carried).ok();
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

    /// Delivers each part when it is due and no cut holds it.
    async fn deliver(
        &self,
        mut parts: UnboundedReceiver<Parcel>,
        mut to: OwnedWriteHalf,
    ) -> Result<(), Gone> {
        while let Some((due, part)) = parts.recv().await {
            sleep_until(due).await;
            self.heals().await;
            match part {
                Part::Bytes(bytes) => to.write_all(&bytes).await?,
                Part::End => to.shutdown().await?,
                Part::Reset => {
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
}

impl From<io::Error> for Gone {
    fn from(_: io::Error) -> Self {
        Self
    }
}
