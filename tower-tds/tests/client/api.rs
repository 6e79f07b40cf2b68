//! The public interface of the client: paths, bodies, certificates, proxies, shutdown.

use std::{future::IntoFuture, time::Duration};

use http::{Request, StatusCode, header::USER_AGENT};
use http_body_util::BodyExt as _;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use tds_sim::{Config, Faults, Server};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    time::sleep,
};
use tower_tds::{Client, Credentials, Kind, Limits, SharedLimits};

use crate::client::{
    server,
    sim::{self, builder, client_at, start},
};

/// Longer than any operation of these tests.
const HANGS: Duration = Duration::from_secs(60);

#[derive(Debug, serde::Deserialize)]
struct Named {
    name: String,
}

#[tokio::test]
async fn targets_by_path_url_or_request_reach_the_service() {
    let server = start(Config::default()).await;
    let client = sim::client(&server);
    let text = client.get("/v1/live/bus").await.expect("data").text().await;
    assert!(text.expect("a whole body").starts_with("{\"name\":\"bus\""));
    let whole = format!("{}/v1/live/bus?a=%2F", server.base_url());
    let named: Named = client
        .get(&whole)
        .await
        .expect("data")
        .json()
        .await
        .expect("JSON");
    assert_eq!(named.name, "bus");
    // The simulated service accepts only GET.
    let head = Request::head("/v1/live/bus").body(()).expect("a request");
    let refused = client.request(head).await.expect_err("no GET");
    assert_eq!(refused.status(), Some(StatusCode::METHOD_NOT_ALLOWED));
    let request = Request::get("/v1/live/bus?b").body(()).expect("a request");
    let response = client.request(request).await.expect("data").into_http();
    drop(response);
    let targets: Vec<_> = server
        .ledger()
        .arrivals()
        .iter()
        .map(|arrival| arrival.target.to_string())
        .collect();
    let path = "/v1/live/bus";
    assert_eq!(
        targets,
        [path, "/v1/live/bus?a=%2F", path, "/v1/live/bus?b"]
    );
}

#[tokio::test]
async fn base_url_may_have_a_path() {
    let server = start(Config::default()).await;
    let base = format!("{}/v1/", server.base_url());
    let client = client_at(&server, &base);
    client
        .get("/live/bus?$filter=line%20eq%20'307'")
        .await
        .expect("data");
    let arrivals = server.ledger().arrivals();
    let target = arrivals.first().map(|arrival| &*arrival.target);
    assert_eq!(target, Some("/v1/live/bus?$filter=line%20eq%20'307'"));
}

#[tokio::test]
async fn foreign_or_malformed_target_is_refused_unsent() {
    let server = start(Config::default()).await;
    let other = start(Config::default()).await;
    let client = sim::client(&server);
    let foreign = format!("{}/v1/live/bus", other.base_url());
    for target in [&*foreign, "v1/live/bus", "/a b", ""] {
        let error = client.get(target).await.expect_err(target);
        assert_eq!(error.kind(), Kind::InvalidRequest, "{target}: {error}");
    }
    let error = client.get("/v1/live/bus").header("a b", "c").await;
    assert_eq!(error.expect_err("no name").kind(), Kind::InvalidRequest);
    for ledger in [server.ledger(), other.ledger()] {
        assert_eq!(ledger.summary().data_calls, 0);
    }
}

#[tokio::test]
async fn body_is_read_whole_in_chunks_or_in_frames() {
    let server = start(Config::default()).await;
    let client = sim::client(&server);
    let path = "/v1/live/bus";
    let whole = client
        .get(path)
        .await
        .expect("data")
        .bytes()
        .await
        .expect("a body");
    let mut response = client.get(path).await.expect("data");
    let mut pieces = Vec::new();
    while let Some(piece) = response.chunk().await.expect("a body") {
        pieces.extend_from_slice(&piece);
    }
    let response = client.get(path).await.expect("data").into_http();
    let framed = response.into_body().collect().await.expect("a body");
    let framed = framed.to_bytes();
    // The service has fresh data each time, of the same shape.
    for body in [&*whole, &*pieces, &*framed] {
        assert!(body.starts_with(b"{\"name\":\"bus\""), "{body:?}");
    }
}

/// Answers one request of each connection, and returns the heads of the requests.
async fn echo() -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (saw, seen) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let head = head(&mut socket).await;
            if saw.send(head).is_err() {
                return;
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            socket.write_all(answer).await.expect("the client reads");
        }
    });
    (url, seen)
}

async fn head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.expect("a head"));
    }
    String::from_utf8(head).expect("a head is text")
}

#[tokio::test]
async fn request_has_exactly_one_host_header() {
    let server = start(Config::default()).await;
    let (url, mut seen) = echo().await;
    let authority = url.trim_start_matches("http://");
    let client = client_at(&server, &url);
    let whole = format!("{url}/whole");
    for target in ["/path", &whole] {
        client.get(target).await.expect("an answer");
        client
            .get(target)
            .header("host", authority)
            .await
            .expect("an answer");
        for _ in 0..2 {
            let head = seen.recv().await.expect("a head").to_lowercase();
            let hosts = head.lines().filter_map(|line| line.strip_prefix("host: "));
            assert_eq!(hosts.collect::<Vec<_>>(), [authority], "{head}");
        }
    }
    // The token is for one host.
    let error = client.get("/path").header("host", "other.example").await;
    assert_eq!(
        error.expect_err("another host").kind(),
        Kind::InvalidRequest
    );
}

#[tokio::test]
async fn client_sends_a_user_agent_unless_the_caller_does() {
    let server = start(Config::default()).await;
    let (url, mut seen) = echo().await;
    let version = concat!("user-agent: tower-tds/", env!("CARGO_PKG_VERSION"));
    client_at(&server, &url).get("/").await.expect("an answer");
    let head = seen.recv().await.expect("a head").to_lowercase();
    assert!(head.contains(version), "{head}");
    client_at(&server, &url)
        .get("/")
        .header(USER_AGENT, "mine")
        .await
        .expect("an answer");
    let head = seen.recv().await.expect("a head");
    assert!(head.contains("mine") && !head.contains(version), "{head}");
}

/// A tunnelling proxy: its address, and the heads of its CONNECT requests with their credentials.
async fn proxy() -> (
    std::net::SocketAddr,
    tokio::sync::mpsc::UnboundedReceiver<String>,
) {
    slow_proxy(|_| Duration::ZERO).await
}

/// A proxy that waits this long before it accepts the n-th tunnel.
async fn slow_proxy(
    wait: fn(u32) -> Duration,
) -> (
    std::net::SocketAddr,
    tokio::sync::mpsc::UnboundedReceiver<String>,
) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (saw, seen) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut waits = (0..).map(wait);
        while let Ok((mut socket, _)) = listener.accept().await {
            let (saw, wait) = (saw.clone(), waits.next().expect("it never ends"));
            tokio::spawn(async move {
                let head = head(&mut socket).await;
                let target = head.split(' ').nth(1).map(str::to_owned);
                let mut there = TcpStream::connect(target.expect("a target"))
                    .await
                    .expect("it listens");
                drop(saw.send(head));
                sleep(wait).await;
                socket
                    .write_all(b"HTTP/1.1 200 OK\r\n\r\n")
                    .await
                    .expect("the client reads");
                drop(copy_bidirectional(&mut socket, &mut there).await);
            });
        }
    });
    (address, seen)
}

#[tokio::test]
async fn client_works_through_a_proxy_with_a_root_certificate() {
    let mut config = Config::default();
    config.tls = true;
    let server = start(config).await;
    let authority = std::fs::read(server.ca_file().expect("it speaks TLS")).expect("it is there");
    let (address, mut seen) = proxy().await;
    let client = builder(&server)
        .root_certificate(&authority)
        .proxy(&format!("http://ann:s3cr3t@{address}"))
        .build()
        .expect("all of it can be used");
    client.get("/v1/live/bus").await.expect("data");
    for _ in 0..2 {
        let head = seen
            .recv()
            .await
            .expect("a tunnel for the token, and one for the data");
        assert!(
            head.starts_with("CONNECT 127.0.0.1:") || head.starts_with("CONNECT localhost:"),
            "{head}"
        );
        assert!(
            head.to_lowercase().contains("proxy-authorization: basic "),
            "{head}"
        );
    }
    // The token's tunnel is closed, and its permit is back a second later.
    while client.limiter().snapshot().connections > 1 {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(
        client.limiter().snapshot().connections,
        1,
        "the tunnel counts"
    );
}

#[tokio::test]
async fn call_without_a_connection_is_unsent_after_deadline_or_cancel() {
    let mut config = Config::default();
    config.tls = true;
    let server = start(config).await;
    let authority = std::fs::read(server.ca_file().expect("it speaks TLS")).expect("it is there");
    // The tunnel for the token is quick. The tunnels for data are slow.
    let slow = |n| Duration::from_millis(if n == 0 { 0 } else { 600 });
    let (address, mut seen) = slow_proxy(slow).await;
    let client = builder(&server)
        .root_certificate(&authority)
        .proxy(&format!("http://{address}"))
        .build()
        .expect("all of it can be used");
    client.tokens().ready().await.expect("a token");
    seen.recv().await.expect("the token's tunnel");
    let request = Request::post("/v1/live/bus").body("once");
    let late = client.request(request.expect("a request"));
    let error = late.deadline(Duration::from_millis(100)).await;
    assert_eq!(error.expect_err("no tunnel").kind(), Kind::Timeout);
    let gone = client.get("/v1/live/bus").into_future();
    tokio::time::timeout(Duration::from_millis(100), gone)
        .await
        .expect_err("no tunnel");
    seen.recv().await.expect("the first one's tunnel");
    seen.recv().await.expect("the second one's tunnel");
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(server.ledger().summary().data_calls, 0);
}

#[tokio::test]
async fn unknown_certificate_authority_is_refused() {
    let mut config = Config::default();
    config.tls = true;
    let server = start(config).await;
    let client = builder(&server).build().expect("the platform has roots");
    let error = client
        .get("/v1/live/bus")
        .await
        .expect_err("nobody knows it");
    assert_eq!((error.kind(), error.attempts()), (Kind::Tls, 1));
    let line = error.to_string();
    assert!(line.contains("Builder::root_certificate"), "{line}");
    assert_eq!(server.ledger().summary().token_posts, 0);
}

#[tokio::test]
async fn custom_tls_configuration_is_used() {
    let mut config = Config::default();
    config.tls = true;
    let server = Server::start(config).await.expect("a free port");
    let authority = std::fs::read(server.ca_file().expect("it speaks TLS")).expect("it is there");
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(&authority) {
        let root = root.expect("it is PEM");
        roots.add(root).expect("a certificate");
    }
    let with = |roots: RootCertStore| {
        let config =
            ClientConfig::builder_with_provider(std::sync::Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("ring knows them")
                .with_root_certificates(roots)
                .with_no_client_auth();
        let client = builder(&server).tls(config).build();
        client.expect("a configuration")
    };
    with(roots).get("/v1/live/bus").await.expect("data");
    let error = with(RootCertStore::empty()).get("/v1/live/bus").await;
    let error = error.map(drop).expect_err("it believes nobody");
    assert_eq!(error.kind(), Kind::Tls, "{error}");
}

#[tokio::test]
async fn build_refuses_invalid_or_ignored_settings() {
    let server = start(Config::default()).await;
    let plain = || builder(&server);
    let tls = || {
        let provider = std::sync::Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config
            .with_safe_default_protocol_versions()
            .expect("they are known");
        config
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth()
    };
    let secure = || {
        let credentials = Credentials::new("id", "s3cr3t").expect("they can be sent");
        let (auth, data) = ("https://auth.example.org", "https://data.example.org");
        Client::builder(auth, data, credentials).tls(tls())
    };
    let mut with_alpn = tls();
    with_alpn.alpn_protocols = vec![b"h2".to_vec()];
    let cases = [
        (plain().root_certificate(b"no PEM"), "root certificate"),
        (
            plain().tls(tls()).root_certificate(b"any"),
            "root_certificate",
        ),
        (secure().proxy("not an address"), "proxy"),
        (plain().tls(with_alpn), "ALPN"),
        (secure().proxy("socks5://127.0.0.1:1080"), "proxy"),
        (secure().proxy("https://127.0.0.1:1080"), "proxy"),
    ];
    for (builder, named) in cases {
        let error = builder.build().expect_err(named);
        assert!(error.to_string().contains(named), "{error}");
    }
    plain()
        .tls(tls())
        .build()
        .expect("a configuration of one's own");
}

#[tokio::test]
async fn cancelled_call_on_a_reused_connection_is_completed() {
    let mut config = Config::default();
    config.tls = true;
    let server = start(config).await;
    let mut faults = Faults::default();
    faults.before_head = "400ms".parse().expect("a delay");
    server.sim().set_faults(faults);
    let authority = std::fs::read(server.ca_file().expect("it speaks TLS")).expect("it is there");
    // The tunnels of the token and of the first call are quick. All others are slow.
    let slow = |n| Duration::from_secs(if n < 2 { 0 } else { 5 });
    let (address, _seen) = slow_proxy(slow).await;
    let client = builder(&server)
        .root_certificate(&authority)
        .proxy(&format!("http://{address}"))
        .build()
        .expect("all of it can be used");
    client.tokens().ready().await.expect("a token");
    let first = tokio::spawn(client.get("/v1/live/bus").into_future());
    sleep(Duration::from_millis(150)).await;
    // The second call begins to connect, and then gets the free connection of the first call.
    let second = tokio::spawn(client.get("/v1/live/bus").into_future());
    let first = first.await.expect("no panic").expect("data");
    first.bytes().await.expect("a whole body");
    while server.ledger().summary().data_calls < 2 {
        sleep(Duration::from_millis(5)).await;
    }
    second.abort();
    sleep(Duration::from_millis(1_500)).await;
    let seen = server.ledger().summary();
    assert_eq!((seen.complete, seen.aborted), (2, 0));
}

#[tokio::test]
async fn clients_with_shared_limits_pause_separately() {
    let answer =
        b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 3600\r\ncontent-length: 0\r\n\r\n";
    let (refuses, serves) = (
        server::Server::start(answer).await,
        server::Server::start(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await,
    );
    let limits = SharedLimits::from(Limits::default());
    // By value, as one would write it first, and by reference.
    let at = |server: &server::Server, limits: SharedLimits| {
        let client = server.builder().limits(limits).build();
        client.expect("loopback is let through")
    };
    let one = at(&refuses, limits.clone());
    let other = at(&serves, limits);
    let error = one
        .get("/x")
        .await
        .map(drop)
        .expect_err("its quota is gone");
    assert_eq!(error.kind(), Kind::QuotaExhausted);
    other.get("/x").await.expect("it is another key's");
}

#[tokio::test]
async fn request_with_version_http2_succeeds() {
    let server = start(Config::default()).await;
    let client = sim::client(&server);
    let request = Request::get("/v1/live/bus").version(http::Version::HTTP_2);
    let response = client.request(request.body(()).expect("a request")).await;
    assert_eq!(response.expect("data").status(), StatusCode::OK);
}

#[tokio::test]
async fn deadline_ends_a_dripping_body_coded_or_plain() {
    let server = start(Config::default()).await;
    for coded in [false, true] {
        let mut client = builder(&server);
        if coded {
            client = client.compression();
        }
        let client = client.build().expect("loopback is let through");
        client.tokens().ready().await.expect("a token");
        // Long enough for a head on a machine that stalls.
        let whole = Duration::from_secs(5);
        let drips = client.get("/v1/history/day?bytes=400000&rate=3000");
        let head = drips.deadline(whole).await.expect("a head");
        let error = head.bytes().await.expect_err("it takes two minutes");
        assert_eq!(error.kind(), Kind::Timeout, "{error}");
        assert_eq!(error.waited_for(), Some("the rest of the body"));
        assert!(error.received() > Some(0), "{error}");
        assert!(client.shutdown(HANGS).await, "its place comes back");
    }
    let seen = server.ledger().summary();
    assert_eq!((seen.data_calls, seen.complete), (2, 0));
}

#[tokio::test]
async fn debug_of_call_and_response_shows_no_secret() {
    let server = start(Config::default()).await;
    let client = sim::client(&server);
    let call = client
        .get("/v1/live/bus?key=CANARY")
        .header("x-api-key", "CANARY");
    let printed = format!("{call:?}");
    let answer = client.get("/v1/live/bus").await.expect("data");
    let mut answer = answer.into_http();
    let cookie = "CANARY".parse().expect("a header");
    answer.headers_mut().insert("set-cookie", cookie);
    let printed = format!("{printed} {:?}", tower_tds::Response::from(answer));
    assert!(!printed.contains("CANARY"), "{printed}");
}
