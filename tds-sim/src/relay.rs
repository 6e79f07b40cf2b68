//! Network in front of an address, as a TCP relay with delays.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::Serialize;
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
    time::Instant,
};

use self::line::{Line, Side};
use crate::{clock::lock, delay::Delay, error::Error};

mod line;

/// TCP relay on 127.0.0.1 that delays the bytes of each direction by a seeded [`Delay`].
///
/// Put it between your client and any server, the simulator or another program. Bytes then arrive
/// late, at irregular times, or all at once after a stall, as on a network.
///
/// - For each connection that it accepts, it connects to the server after one delay. If that fails,
///   it resets the accepted connection.
/// - Within a connection, bytes keep their order.
/// - Ends (FIN) and resets (RST) are passed on with the same delay as bytes. If one direction ends,
///   the other stays open.
/// - Each connection has its own two sequences of delays, determined by the seed and the number of
///   connections before it, and each piece that the relay reads has its own delay. The seed does
///   not determine how bytes are cut into pieces, so two runs may differ.
///
/// # Cancel safety
/// Dropping it closes every connection at once. Delayed bytes are lost.
///
/// # Examples
/// ```
/// use tds_sim::{Config, Network, Relay, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start(Config::default()).await?;
/// let to = server.base_url().trim_start_matches("http://").parse()?;
///
/// let mut network = Network::default();
/// network.there = "lognormal:5ms:100ms".parse()?;
/// network.back = "stall:5s:300ms".parse()?;
/// let relay = Relay::start(to, network).await?;
///
/// let base_url = format!("http://{}", relay.address()); // for the client
/// # drop(base_url);
/// assert_eq!(relay.counts().accepted, 0);
/// # Ok(())
/// # }
/// ```
///
/// [`Delay`]: crate::Delay
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    counts: Arc<Mutex<Counts>>,
    accepting: JoinHandle<()>,
}

/// Settings of the network in front of a server; by default without delays.
///
/// # Examples
/// ```
/// let mut network = tds_sim::Network::default();
/// network.there = "lognormal:10ms:200ms".parse()?;
/// network.back = network.there;
/// network.seed = 7;
/// # Ok::<_, tds_sim::ParseError>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Network {
    /// Delay of each piece from the client to the server, and of each new connection.
    pub there: Delay,
    /// Delay of each piece from the server to the client.
    pub back: Delay,
    /// Seed of all delays.
    pub seed: u64,
    /// Port on 127.0.0.1; 0 takes a free one.
    pub port: u16,
}

/// Connections of one relay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// Connections accepted so far.
    pub accepted: u64,
    /// Connections not yet closed on both sides.
    pub open: u64,
    /// Most connections open at one time.
    pub peak: u64,
}

/// Connection that counts as open until this is dropped.
struct Counted(Arc<Mutex<Counts>>);

// === impl Relay ===

impl Relay {
    /// Starts to relay to `to`.
    ///
    /// # Errors
    /// Fails if the port is taken: choose another, or 0 for a free one.
    pub async fn start(to: SocketAddr, network: Network) -> Result<Self, Error> {
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, network.port)).await;
        let listener = bound.map_err(|error| Error::failed(TAKEN, error))?;
        let address = listener
            .local_addr()
            .map_err(|error| Error::failed("cannot start: no address", error))?;
        let counts = Arc::default();
        let accepting = tokio::spawn(accept(listener, to, network, Arc::clone(&counts)));
        Ok(Self {
            address,
            counts,
            accepting,
        })
    }

    /// Returns the address to which the client connects.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counts of the relay's connections.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *lock(&self.counts)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

// === impl Network ===

impl Network {
    /// Returns the two directions of a connection. `number` connections were accepted before it.
    fn lines(&self, start: Instant, number: u64) -> [Line; 2] {
        // Similar seeds still give unlike sequences, and a fork is as good as a new seed.
        let mut rng =
            fastrand::Rng::with_seed(self.seed.wrapping_add(number.wrapping_mul(GOLDEN_RATIO)));
        let there = Line::new(self.there, rng.fork(), start);
        let back = Line::new(self.back, rng.fork(), start);
        [there, back]
    }
}

// === impl Counted ===

impl Counted {
    /// Counts an accepted connection. Returns the number of connections before it.
    fn new(counts: &Arc<Mutex<Counts>>) -> (Self, u64) {
        let mut all = lock(counts);
        let number = all.accepted;
        all.accepted += 1;
        all.open += 1;
        all.peak = all.peak.max(all.open);
        (Self(Arc::clone(counts)), number)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        lock(&self.0).open -= 1;
    }
}

/// Accepts connections until it is dropped, which closes them.
async fn accept(
    listener: TcpListener,
    to: SocketAddr,
    network: Network,
    counts: Arc<Mutex<Counts>>,
) {
    let start = Instant::now();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else {
                    // Most likely there is no file descriptor left until a connection ends.
                    tokio::time::sleep(RETRY).await;
                    continue;
                };
                let (counted, number) = Counted::new(&counts);
                let lines = network.lines(start, number);
                connections.spawn(async move {
                    pass(client, to, lines).await;
                    drop(counted);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Opens a connection to the server and relays both ways, until both have ended or either side
/// has reset it.
async fn pass(mut client: TcpStream, to: SocketAddr, [mut there, mut back]: [Line; 2]) {
    // Delays the client's SYN as well. Until then the client's bytes wait in the socket, as they
    // would for the server's SYN and ACK.
    there.hold_up().await;
    let Ok(mut server) = TcpStream::connect(to).await else {
        reset(&client);
        return;
    };
    // Keeps the kernel from adding delays to those of the lines. An error only means that the
    // socket is closed.
    drop(client.set_nodelay(true));
    drop(server.set_nodelay(true));

    let (near, far) = (Side::default(), Side::default());
    let (client_reads, client_writes) = client.split();
    let (server_reads, server_writes) = server.split();
    let passed = tokio::try_join!(
        there.pass((client_reads, &near), (server_writes, &far)),
        back.pass((server_reads, &far), (client_writes, &near)),
    );
    if passed.is_err() || near.is_broken() || far.is_broken() {
        reset(&client);
        reset(&server);
    }
}

/// Turns the close of `socket` into a reset.
fn reset(socket: &TcpStream) {
    // Fails only if the peer has already closed the connection.
    drop(socket.set_zero_linger());
}

/// Golden ratio's fraction in 64 bits: spreads consecutive numbers over all seeds (Knuth, The Art
/// of Computer Programming, volume 3, section 6.4).
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// How long the listener waits after a failed accept.
const RETRY: Duration = Duration::from_millis(10);

const TAKEN: &str =
    "cannot start: the relay's port is not free; choose another, or 0 for a free one";

#[cfg(test)]
mod tests;
