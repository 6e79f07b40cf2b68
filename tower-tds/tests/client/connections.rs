//! The connection of a request after a failed one, as the server saw it.

use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Method, Request};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpSocket, TcpStream},
    time::{Instant, pause},
};
use tower::ServiceExt;
use tower_tds::{
    Client, Credentials, Error, Kind, Limits, RequestBody,
    layers::errors::{RetryLayer, Sent},
};

use crate::client::server;

/// The reaction of the server to a request, by the number of its connection and the
/// request's number there.
type Script = fn(usize, usize) -> Act;

enum Act {
    Answer(&'static str),
    /// Reads the request, and closes.
    Close,
}

/// Data requests in order: the number of the connection, and the method.
type Seen = Arc<Mutex<Vec<(usize, String)>>>;

struct Server {
    url: String,
    seen: Seen,
}

// === impl Server ===

impl Server {
    async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let seen = Seen::default();
        let noted = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, script, Arc::clone(&noted)));
            }
        });
        Self { url, seen }
    }

    fn client(&self, limits: Limits, attempts: u32) -> Client {
        self.client_of(&self.url, limits, attempts)
    }

    /// A client of another service, with tokens from here.
    fn client_of(&self, url: &str, limits: Limits, attempts: u32) -> Client {
        let soon = Duration::from_millis(1);
        let credentials = Credentials::new("id", "s3cr3t").expect("it can be sent");
        Client::builder(&self.url, url, credentials)
            .loopback_http()
            .limits(limits)
            .retry(
                RetryLayer::new()
                    .attempts(count(attempts))
                    .backoff(soon, soon),
            )
            .build()
            .expect("loopback is let through")
    }

    async fn call(&self, client: &Client, method: &Method) -> Result<(), Error> {
        let request = Request::builder().method(method).uri(&self.url);
        let request = request.body(RequestBody::default()).expect("a request");
        client.clone().oneshot(request).await.map(drop)
    }

    /// The connections of the data requests in order.
    fn connections(&self) -> Vec<usize> {
        let seen = self.seen.lock().expect("nobody panicked");
        seen.iter().map(|(connection, _)| *connection).collect()
    }
}

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("a count is not zero")
}

/// One data connection at most, so that no connect races with the pool; the other is the token's.
fn one_for_data() -> Limits {
    Limits::default().connections(count(2))
}

async fn serve(mut stream: TcpStream, script: Script, seen: Seen) {
    let mut connection = None;
    let mut number = 0_usize;
    while let Some(head) = server::read(&mut stream).await {
        let method = head.split(' ').next().expect("a method").to_owned();
        let act = if method == "POST" && head.contains("openid-connect/token") {
            Act::Answer(TOKEN)
        } else {
            let mut seen = seen.lock().expect("nobody panicked");
            let last = seen.iter().map(|(connection, _)| *connection).max();
            let next = last.unwrap_or_default() + 1;
            let connection = *connection.get_or_insert(next);
            number += 1;
            seen.push((connection, method));
            script(connection, number)
        };
        match act {
            Act::Answer(answer) => {
                let written = stream.write_all(answer.as_bytes()).await;
                written.expect("the client reads");
            }
            Act::Close => return,
        }
    }
}

const TOKEN: &str = "HTTP/1.1 200 OK\r\ncontent-length: 59\r\n\r\n\
    {\"access_token\":\"t\",\"expires_in\":900,\"token_type\":\"Bearer\"}";
const OK: Act = Act::Answer("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");

/// A call on a connection that the server closes as soon as the request arrives.
async fn meets_a_closed_connection(method: &Method) -> (Result<(), Error>, Vec<usize>) {
    let server = Server::start(|connection, request| match (connection, request) {
        (1, 2) => Act::Close,
        _ => OK,
    })
    .await;
    let client = server.client(one_for_data(), 2);
    let called = server.call(&client, &Method::GET).await;
    called.expect("the first connection is well at first");
    let called = server.call(&client, method).await;
    (called, server.connections())
}

#[tokio::test]
async fn idempotent_call_on_a_closed_connection_uses_a_new_one() {
    for method in [
        Method::GET,
        Method::HEAD,
        Method::OPTIONS,
        Method::TRACE,
        Method::PUT,
        Method::DELETE,
    ] {
        let (called, connections) = meets_a_closed_connection(&method).await;
        called.expect("the next connection is well");
        assert_eq!(connections, [1, 1, 2], "{method}");
    }
}

#[tokio::test]
async fn post_or_patch_on_a_closed_connection_is_not_retried() {
    for method in [Method::POST, Method::PATCH] {
        let (called, connections) = meets_a_closed_connection(&method).await;
        let error = called.expect_err("it may have run");
        assert_eq!((error.kind(), error.attempts()), (Kind::Reset, 1));
        assert_eq!(connections, [1, 1], "{method}");
    }
}

#[tokio::test]
#[cfg_attr(
    not(target_os = "linux"),
    ignore = "Linux alone says nothing to who would connect while its queue is full"
)]
async fn unaccepted_connect_fails_after_30_seconds_unsent() {
    let server = Server::start(|_, _| OK).await;
    let socket = TcpSocket::new_v4().expect("a socket");
    let port = ([127, 0, 0, 1], 0).into();
    socket.bind(port).expect("a port");
    let full = socket.listen(0).expect("it listens");
    let address = full.local_addr().expect("an address");
    let queued = TcpStream::connect(address).await.expect("one has room");

    let url = format!("http://{address}");
    let client = server.client_of(&url, Limits::default(), 3);
    client.tokens().ready().await.expect("a token");
    // From here on only timers act.
    pause();
    let start = Instant::now();
    let request = Request::post(&url).body(RequestBody::default());
    let called = client.oneshot(request.expect("a request")).await;
    let error = called.map(drop).expect_err("nobody answers");
    assert_eq!((error.kind(), error.attempts()), (Kind::Connect, 3));
    assert_eq!((error.sent(), start.elapsed().as_secs()), (Sent::Never, 30));
    drop((queued, full));
}
