//! A listener on a port of this machine, and the connections that it has accepted.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use tokio::net::{TcpListener, TcpStream};

/// Connections from their accept until the server forgets them.
#[derive(Debug, Default)]
pub(crate) struct Accepted {
    open: AtomicU32,
    most: AtomicU32,
    all: AtomicU32,
}

// === impl Accepted ===

impl Accepted {
    /// The most that were open at once.
    pub(crate) fn most(&self) -> u32 {
        self.most.load(SeqCst)
    }

    pub(crate) fn all(&self) -> u32 {
        self.all.load(SeqCst)
    }
}

/// Counts each connection until `serve` has ended. What that returns is dropped after the count, because a server forgets
/// a connection no later than it closes it.
pub(crate) async fn listen<S>(
    serve: impl Fn(TcpStream) -> S + Send + 'static,
) -> (SocketAddr, Arc<Accepted>)
where
    S: Future + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let accepted = Arc::<Accepted>::default();
    let counts = Arc::clone(&accepted);
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.expect("loopback accepts");
            counts.all.fetch_add(1, SeqCst);
            let open = counts.open.fetch_add(1, SeqCst) + 1;
            counts.most.fetch_max(open, SeqCst);
            let (served, counts) = (serve(socket), Arc::clone(&counts));
            tokio::spawn(async move {
                let _socket = served.await;
                counts.open.fetch_sub(1, SeqCst);
            });
        }
    });
    (address, accepted)
}
