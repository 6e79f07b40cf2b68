//! One connection through the relay: two sockets, two lines.

use std::net::SocketAddr;

use tokio::net::TcpStream;

use crate::relay::line::{Line, Side};

/// An accepted connection that is not opened to the server yet.
#[derive(Debug)]
pub(super) struct Connection {
    client: TcpStream,
    to: SocketAddr,
    there: Line,
    back: Line,
}

// === impl Connection ===

impl Connection {
    pub(super) fn new(client: TcpStream, to: SocketAddr, there: Line, back: Line) -> Self {
        Self {
            client,
            to,
            there,
            back,
        }
    }

    /// Opens it to the server and passes on what comes, both ways, until both have ended or
    /// either side has reset it.
    pub(super) async fn pass(mut self) {
        // The client's SYN takes its time too. Its bytes wait in the socket meanwhile, as they
        // would for the server's SYN and ACK.
        self.there.hold_up().await;
        let Ok(mut server) = TcpStream::connect(self.to).await else {
            reset(&self.client);
            return;
        };
        // Pieces are held up here as told, and nowhere else. A socket that cannot be set is dead.
        drop(self.client.set_nodelay(true));
        drop(server.set_nodelay(true));

        let (near, far) = (Side::default(), Side::default());
        let (client_reads, client_writes) = self.client.split();
        let (server_reads, server_writes) = server.split();
        let there = self
            .there
            .pass((client_reads, &near), (server_writes, &far));
        let back = self.back.pass((server_reads, &far), (client_writes, &near));
        let passed = tokio::try_join!(there, back);

        if passed.is_err() || near.is_broken() || far.is_broken() {
            reset(&self.client);
            reset(&server);
        }
    }
}

/// Makes the close of `socket` a reset.
fn reset(socket: &TcpStream) {
    // If the peer has gone already, there is nobody left to be reset.
    drop(socket.set_zero_linger());
}
