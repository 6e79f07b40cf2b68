//! A stand-in at the address of a stopped server.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{net::TcpListener, task::JoinHandle};

/// Closes every connection at once, and counts them.
pub(crate) struct Away {
    came: Arc<AtomicUsize>,
    door: JoinHandle<()>,
}

// === impl Away ===

impl Away {
    pub(crate) async fn at(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listener.expect("the server has left it");
        let came = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&came);
        let door = tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { came, door }
    }

    /// Frees the address, and returns the number of connections.
    pub(crate) async fn leave(self) -> usize {
        self.door.abort();
        self.door.await.expect_err("it had no other end");
        self.came.load(Ordering::Relaxed)
    }
}
