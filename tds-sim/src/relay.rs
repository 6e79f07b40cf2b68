//! A network in front of an address: TCP with delays, as a socket of its own.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    net::TcpListener,
    task::{JoinHandle, JoinSet},
    time::Instant,
};

use crate::error::Error;

mod connection;
mod line;
mod network;
mod tally;

pub use self::network::Network;
use self::{connection::Connection, tally::Tally};

/// A TCP relay on 127.0.0.1 that holds up what passes, each way by a seeded [`Delay`].
///
/// Put it between a client and any server, this simulator or another program: what the client
/// sends then arrives late, at irregular times, or all at once after a stall, as on a network.
///
/// - Each connection it accepts is opened to the server, a delay later; one that cannot be is reset.
/// - The bytes of a connection keep their order: none overtakes one that is held up.
/// - An end (FIN) and a reset (RST) pass as such, as late as bytes do. An end closes one direction;
///   the other goes on.
/// - Each connection has its own two sequences of delays, which follow from the seed and from how
///   many were accepted before it. How TCP cuts bytes into pieces, each with its delay, does not.
///
/// # Cancel safety
/// Dropping it closes every connection at once, whatever is still held up.
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
/// assert_eq!(relay.accepted(), 0);
/// # Ok(())
/// # }
/// ```
///
/// [`Delay`]: crate::Delay
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    tally: Arc<Tally>,
    accepting: JoinHandle<()>,
}

// === impl Relay ===

impl Relay {
    /// Starts to relay to `to`.
    ///
    /// # Errors
    /// If the port that the network names is taken: name another, or 0 for a free one.
    pub async fn start(to: SocketAddr, network: Network) -> Result<Self, Error> {
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, network.port)).await;
        let listener = bound.map_err(|error| Error::start(TAKEN, error))?;
        let address = listener
            .local_addr()
            .map_err(|error| Error::start("no address", error))?;
        let tally = Arc::new(Tally::default());
        let accepting = tokio::spawn(accept(listener, to, network, Arc::clone(&tally)));
        Ok(Self {
            address,
            tally,
            accepting,
        })
    }

    /// Where it listens: what the client connects to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections it has accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.tally.counts().accepted
    }

    /// How many connections are open: accepted, and not yet closed on both sides.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.tally.counts().open
    }

    /// The most connections that were open at one time.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.tally.counts().peak
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Accepts for ever; dropped, it closes what it has accepted.
async fn accept(listener: TcpListener, to: SocketAddr, network: Network, tally: Arc<Tally>) {
    let start = Instant::now();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else {
                    // Out of file descriptors, most likely, until a connection ends.
                    tokio::time::sleep(RETRY).await;
                    continue;
                };
                let counted = tally.count();
                let [there, back] = network.lines(start, counted.number());
                let connection = Connection::new(client, to, there, back);
                connections.spawn(async move {
                    connection.pass().await;
                    drop(counted);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// How long the listener waits after a failed accept.
const RETRY: Duration = Duration::from_millis(10);

const TAKEN: &str = "the relay's port is not free, choose another, or 0 for a free one";

#[cfg(test)]
mod tests;
