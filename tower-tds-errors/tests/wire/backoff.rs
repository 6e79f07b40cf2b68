//! Calls in a backoff hold no connection, by the server's count of open sockets.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tower::{ServiceBuilder, ServiceExt};
use tower_tds_errors::{ClassifyLayer, RetryLayer};

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    requests: usize,
    open: usize,
}

/// A failing service whose error bodies are not read to their end.
async fn serve(mut stream: TcpStream, seen: watch::Sender<Seen>) {
    seen.send_modify(|seen| seen.open += 1);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    seen.send_modify(|seen| seen.requests += 1);
    let head = "HTTP/1.1 503 \r\nretry-after: 25\r\ncontent-length: 4194304\r\n\r\n";
    stream.write_all(head.as_bytes()).await.ok();
    // Until the client closes.
    while stream.write_all(&[b'x'; 16 * 1024]).await.is_ok() {}
    drop(stream);
    seen.send_modify(|seen| seen.open -= 1);
}

#[tokio::test]
async fn sixty_calls_in_backoff_hold_no_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/", listener.local_addr().unwrap());
    let (sender, mut seen) = watch::channel(Seen::default());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, sender.clone()));
        }
    });
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new().budget(None))
        .layer(ClassifyLayer::new())
        .service(client);
    let calls: Vec<_> = (0..60)
        .map(|_| {
            let request = Request::get(&uri).body(Full::default()).unwrap();
            tokio::spawn(stack.clone().oneshot(request))
        })
        .collect();
    // The limit is for a failing test: each second try is 25 s away.
    let idle = seen.wait_for(|seen| seen.requests == 60 && seen.open == 0);
    tokio::time::timeout(Duration::from_secs(20), idle)
        .await
        .expect("no socket is held")
        .unwrap();
    assert!(calls.iter().all(|call| !call.is_finished()));
}
