//! Data calls over HTTP/2, by what the server saw.

#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

use std::{
    collections::BTreeMap,
    future::IntoFuture,
    num::NonZeroU32,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use http::{Request, Response, Version};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::{
    client::legacy::connect::HttpConnector,
    rt::{TokioExecutor, TokioIo},
};
use tds_sim::{Config, Faults, Server, Sim, Tls};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinSet,
    time::sleep,
};
use tower::{ServiceExt, service_fn as connector};
use tower_tds::{Builder, Client, Credentials, Kind, Limits};

const PATH: &str = "/v1/live/bus";

async fn start(config: Config) -> Server {
    Server::start(config).await.expect("a free port")
}

/// Answers after this time.
fn slow(server: &Server, time: &str) {
    let mut faults = Faults::default();
    faults.before_head = time.parse().expect("a delay");
    server.sim().set_faults(faults);
}

fn builder(server: &Server, base: &str) -> Builder {
    let credentials = Credentials::new(server.client_id(), server.client_secret());
    let credentials = credentials.expect("the simulator's are usable");
    Client::builder(server.auth_url(), base, credentials).http2()
}

fn client(server: &Server, base: &str) -> Client {
    let built = builder(server, base).loopback_http().build();
    built.expect("loopback is let through")
}

/// So many calls at once, all of which are answered.
async fn all_are_answered(client: &Client, calls: usize) {
    let mut all = JoinSet::new();
    for _ in 0..calls {
        let call = client.get(PATH).into_future();
        all.spawn(async move { call.await?.bytes().await });
    }
    for body in all.join_all().await {
        assert!(body.expect("a whole body").starts_with(b"{\"name\""));
    }
}

#[tokio::test]
async fn all_calls_share_one_socket_and_each_takes_its_permit() {
    let server = start(Config::default()).await;
    let client = client(&server, server.base_url());
    all_are_answered(&client, 120).await;
    let seen = server.ledger().summary();
    assert_eq!(seen.by_status, BTreeMap::from([(200, 120)]));
    assert_eq!((seen.sockets_opened, seen.token_posts), (1, 1));
    assert!(seen.largest_second <= 50, "{seen:?}");
}

#[tokio::test]
async fn it_is_agreed_on_over_tls() {
    let mut config = Config::default();
    config.tls = Tls::On;
    let server = start(config).await;
    let authority = std::fs::read(server.ca_file().expect("it speaks TLS")).expect("it is there");
    let client = builder(&server, server.base_url()).root_certificate(&authority);
    let client = client.build().expect("all of it can be used");
    let response = client.get(PATH).await.expect("data").into_http();
    assert_eq!(response.version(), Version::HTTP_2);
}

/// The simulator's data calls, by a server that leaves each connection after 40 of them.
async fn leaves(sim: &Sim) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let sim = sim.clone();
    tokio::spawn(async move {
        while let Ok((socket, peer)) = listener.accept().await {
            let sim = sim.clone();
            tokio::spawn(async move {
                let _counted = sim.connect(peer);
                let (asked, enough) = (AtomicU32::new(0), Notify::new());
                let answer = service_fn(|mut request: Request<Incoming>| {
                    if asked.fetch_add(1, SeqCst) == 39 {
                        enough.notify_one();
                    }
                    request.extensions_mut().insert(peer);
                    sim.clone().oneshot(request)
                });
                let serving = http2::Builder::new(TokioExecutor::new());
                let mut serving = pin!(serving.serve_connection(TokioIo::new(socket), answer));
                tokio::select! {
                    _ = &mut serving => return,
                    () = enough.notified() => serving.as_mut().graceful_shutdown(),
                }
                serving.await.expect("a connection that ends in peace");
            });
        }
    });
    url
}

#[tokio::test]
async fn a_server_that_leaves_loses_no_call() {
    let server = start(Config::default()).await;
    slow(&server, "50ms");
    let url = leaves(server.sim()).await;
    all_are_answered(&client(&server, &url), 150).await;
    let seen = server.ledger().summary();
    assert_eq!(seen.by_status, BTreeMap::from([(200, 150)]));
    assert_eq!((seen.complete, seen.aborted), (150, 0));
    assert!(
        seen.sockets_opened >= 3 && seen.peak_sockets <= 2,
        "{seen:?}"
    );
    assert!(seen.largest_second <= 50, "{seen:?}");
}

/// A frame (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("a short one");
    let head = [0, 0, length, kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

/// The stream of the next request.
async fn request(socket: &mut TcpStream) -> Option<u32> {
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await.ok()?;
        let [_, high, low, kind, _, stream @ ..] = head;
        let mut payload = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        socket.read_exact(&mut payload).await.ok()?;
        if kind == HEADERS {
            return Some(u32::from_be_bytes(stream));
        }
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

/// A server that has taken four of the first ten requests when it leaves; and how many it has taken in all.
async fn refuses_six() -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let taken = Arc::<AtomicU32>::default();
    let count = Arc::clone(&taken);
    tokio::spawn(async move {
        let mut is_first = true;
        while let Ok((mut socket, _)) = listener.accept().await {
            let (count, leaves) = (Arc::clone(&count), std::mem::take(&mut is_first));
            tokio::spawn(async move {
                let mut preface = [0; 24];
                socket.read_exact(&mut preface).await.expect("a client");
                let settings = [frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, 1, 0, &[])];
                let settings = settings.concat();
                socket.write_all(&settings).await.expect("a client");
                let mut waiting = Vec::new();
                while let Some(stream) = request(&mut socket).await {
                    waiting.push(stream);
                    if leaves && waiting.len() < 10 {
                        continue;
                    }
                    if leaves {
                        waiting.truncate(4);
                        let last = waiting.last().copied().unwrap_or_default();
                        let gone = [last.to_be_bytes(), [0; 4]].concat();
                        let gone = frame(GOAWAY, 0, 0, &gone);
                        socket.write_all(&gone).await.expect("a client");
                    }
                    for stream in waiting.drain(..) {
                        count.fetch_add(1, SeqCst);
                        // `:status: 200` of the static table; the end of the head and of the stream.
                        let answer = frame(HEADERS, 5, stream, &[0x88]);
                        socket.write_all(&answer).await.expect("a client");
                    }
                }
            });
        }
    });
    (url, taken)
}

#[tokio::test]
async fn what_a_server_that_leaves_has_not_taken_is_sent_again_and_nothing_twice() {
    let server = start(Config::default()).await;
    let (url, taken) = refuses_six().await;
    let client = client(&server, &url);
    client.tokens().ready().await.expect("a token");
    let mut all = JoinSet::new();
    for n in 0..10_u32 {
        let search = Request::post(format!("/{n}")).body(()).expect("a request");
        all.spawn(client.request(search).into_future());
    }
    for answer in all.join_all().await {
        assert_eq!(answer.expect("an answer").status(), 200);
    }
    assert_eq!(taken.load(SeqCst), 10);
}

/// A client whose connects take half a second.
fn late(server: &Server) -> Client {
    let late = connector(async |service: http::Uri| {
        sleep(Duration::from_millis(500)).await;
        HttpConnector::new().oneshot(service).await
    });
    let built = builder(server, server.base_url())
        .connector(late)
        .loopback_http()
        .build();
    built.expect("loopback is let through")
}

#[tokio::test]
async fn a_call_that_waits_for_anothers_connection_is_not_sent_after_its_deadline() {
    let server = start(Config::default()).await;
    let client = late(&server);
    client.tokens().ready().await.expect("a token");
    let first = tokio::spawn(client.get(PATH).into_future());
    tokio::task::yield_now().await;
    let hasty = client.get(PATH).deadline(Duration::from_millis(100)).await;
    assert_eq!(hasty.expect_err("no connection").kind(), Kind::Timeout);
    first.await.expect("no panic").expect("data");
    sleep(Duration::from_millis(300)).await;
    assert_eq!(server.ledger().summary().data_calls, 1);
}

#[tokio::test]
async fn a_call_that_was_sent_on_anothers_connection_is_seen_to_its_end() {
    let server = start(Config::default()).await;
    slow(&server, "400ms");
    let client = late(&server);
    client.tokens().ready().await.expect("a token");
    let calls = [(); 2].map(|()| tokio::spawn(client.get(PATH).into_future()));
    while server.ledger().summary().data_calls < 2 {
        sleep(Duration::from_millis(5)).await;
    }
    for call in calls {
        call.abort();
    }
    assert!(client.shutdown(Duration::from_secs(20)).await);
    let seen = server.ledger().summary();
    assert_eq!(
        (seen.complete, seen.aborted, seen.sockets_opened),
        (2, 0, 1)
    );
}

/// The simulator's data calls, by a server that takes two at a time.
async fn takes_two(sim: &Sim) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let sim = sim.clone();
    tokio::spawn(async move {
        while let Ok((socket, peer)) = listener.accept().await {
            let sim = sim.clone();
            tokio::spawn(async move {
                let answer = service_fn(|mut request: Request<Incoming>| {
                    request.extensions_mut().insert(peer);
                    sim.clone().oneshot(request)
                });
                let mut serving = http2::Builder::new(TokioExecutor::new());
                serving.max_concurrent_streams(2);
                let served = serving.serve_connection(TokioIo::new(socket), answer);
                served.await.expect("a connection that ends in peace");
            });
        }
    });
    url
}

#[tokio::test]
async fn with_as_many_places_as_streams_no_call_is_sent_after_its_deadline() {
    let server = start(Config::default()).await;
    let two = NonZeroU32::MIN.saturating_add(1);
    let url = takes_two(server.sim()).await;
    let built = builder(&server, &url).limits(Limits::default().in_flight(two));
    let client = built.loopback_http().build();
    let client = client.expect("loopback is let through");
    all_are_answered(&client, 1).await;
    slow(&server, "4s");
    let mut hasty = JoinSet::new();
    for _ in 0..10 {
        let call = client.get(PATH).deadline(Duration::from_secs(2));
        hasty.spawn(call.into_future());
    }
    for call in hasty.join_all().await {
        assert_eq!(call.expect_err("no time").kind(), Kind::Timeout);
    }
    assert!(client.shutdown(Duration::from_secs(20)).await);
    assert_eq!(server.ledger().summary().data_calls, 1 + 2);
}

#[tokio::test]
async fn a_body_that_ends_before_its_length_is_truncated() {
    let server = start(Config::default()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.expect("a socket");
        let half = service_fn(async |_: Request<Incoming>| {
            let answer = Response::builder().header("content-length", "100");
            answer.body(String::from("half"))
        });
        let serving = http2::Builder::new(TokioExecutor::new());
        let served = serving.serve_connection(TokioIo::new(socket), half);
        served.await.expect("a connection that ends in peace");
    });
    let half = client(&server, &url).get(PATH).await.expect("a head");
    let error = half.bytes().await.expect_err("a half");
    assert_eq!(error.kind(), Kind::Truncated, "{error:?}");
}

/// hyper takes a reset without an error for an end, and proxies reset so what broke off behind them.
#[tokio::test]
async fn a_body_whose_stream_is_reset_without_an_error_is_truncated_and_one_that_has_ended_before_is_whole()
 {
    let server = start(Config::default()).await;
    for ended in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.expect("a socket");
            let mut preface = [0; 24];
            socket.read_exact(&mut preface).await.expect("a client");
            let settings = [frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, 1, 0, &[])];
            socket
                .write_all(&settings.concat())
                .await
                .expect("a client");
            while let Some(stream) = request(&mut socket).await {
                let head = frame(HEADERS, 4, stream, &[0x88]);
                let part = frame(DATA, u8::from(ended), stream, b"part");
                let reset = frame(RST_STREAM, 0, stream, &[0; 4]);
                let answer = [head, part, reset].concat();
                socket.write_all(&answer).await.expect("a client");
            }
        });
        let body = client(&server, &url).get(PATH).await.expect("a head");
        let body = body.bytes().await;
        if ended {
            assert_eq!(body.expect("it has ended"), "part");
        } else {
            let error = body.expect_err("it has not ended");
            assert_eq!(error.kind(), Kind::Truncated, "{error:?}");
        }
    }
}
