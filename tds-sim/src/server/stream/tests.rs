use std::sync::Arc;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::Stream;
use crate::{Config, Sim, socket::Socket};

#[tokio::test]
async fn a_socket_stops_counting_before_its_end_is_sent() {
    let sim = Sim::new(Config::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (tcp, peer) = listener.accept().await.unwrap();
    let mut stream = Stream::new(tcp, Arc::new(Socket::counted(peer, &sim.state.intake)));
    assert_eq!(sim.ledger().summary().sockets_open, 1);

    stream.shutdown().await.unwrap();
    assert_eq!(sim.ledger().summary().sockets_open, 0);
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    drop(stream);
    assert_eq!(sim.ledger().summary().sockets_open, 0);
}
