//! 416 on accepted sockets, idle ones included.

use tds_sim::{Config, CountConnections, Server};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

async fn open(server: &Server) -> TcpStream {
    TcpStream::connect(server.base_url().strip_prefix("http://").unwrap())
        .await
        .unwrap()
}

/// The status of a GET without a token, on a connection that stays open.
async fn status(stream: &mut TcpStream) -> u16 {
    stream
        .write_all(b"GET /v1/live/a HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "closed");
    }
    let text = String::from_utf8(answer).unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Waits until the server has accepted this many sockets.
async fn accepted(server: &Server, sockets: u64) {
    while server.ledger().summary().sockets_opened < sockets {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn idle_socket_over_the_limit_refuses_every_request() {
    let mut config = Config::default();
    config.connections = 3;
    let server = Server::start(config).await.unwrap();
    let mut first = open(&server).await;
    let idle = (open(&server).await, open(&server).await);
    accepted(&server, 3).await;
    assert_eq!(status(&mut first).await, 401, "three are few enough");

    let mut fourth = open(&server).await;
    accepted(&server, 4).await;
    assert_eq!(status(&mut first).await, 416);
    assert_eq!(status(&mut fourth).await, 416);
    let summary = server.ledger().summary();
    assert_eq!((summary.sockets_open, summary.peak_sockets), (4, 4));

    drop(idle);
    while server.ledger().summary().sockets_open > 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(status(&mut fourth).await, 401);
}

#[tokio::test]
async fn socket_is_uncounted_before_its_client_reads_the_end() {
    let mut config = Config::default();
    config.connections = 1;
    config.rate = 1_000;
    let server = Server::start(config).await.unwrap();
    for nth in 0..200 {
        let mut stream = open(&server).await;
        assert_eq!(status(&mut stream).await, 401, "{nth}");
        stream.shutdown().await.unwrap();
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
        // From here on the client may open the next connection.
    }
    assert_eq!(server.ledger().summary().peak_sockets, 1);
}

#[tokio::test]
async fn idle_sockets_are_not_counted_by_busy_counting() {
    let mut config = Config::default();
    config.connections = 1;
    config.counting = CountConnections::Busy;
    let server = Server::start(config).await.unwrap();
    let idle = (
        open(&server).await,
        open(&server).await,
        open(&server).await,
    );
    accepted(&server, 3).await;
    let mut used = open(&server).await;
    assert_eq!(status(&mut used).await, 401);

    let token = server.sim().token(server.client_id()).unwrap();
    let mut slow = open(&server).await;
    let request = format!(
        "GET /v1/history/a?bytes=1000000000&rate=1000 HTTP/1.1\r\nhost: a\r\n\
         authorization: Bearer {token}\r\n\r\n"
    );
    slow.write_all(request.as_bytes()).await.unwrap();
    assert!(
        slow.read(&mut [0; 16]).await.unwrap() > 0,
        "its head has come"
    );
    assert_eq!(status(&mut used).await, 416);
    drop(idle);
}
