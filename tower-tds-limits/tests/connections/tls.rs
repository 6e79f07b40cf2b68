//! TLS above the limit: a server counts TCP connections.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http::Uri;
use http_body_util::Empty;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{Connect, HttpConnector, proxy::Tunnel},
    },
    rt::TokioExecutor,
};
use rcgen::CertifiedKey;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tower::Layer;
use tower_tds_limits::{ConnectionLimit, ConnectionLimitLayer, Limiter};

use crate::connections::{get, limiter, server::BODY};

/// Script of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Answers whatever comes.
    Answer,
    /// Refuses the handshake, and closes a tenth of a second later.
    Refuse,
    /// Answers one request, sends a `close_notify` when the client has the answer, and closes half a
    /// second after the client has left.
    Notify,
}

struct TlsServer {
    uri: Uri,
    certificate: CertificateDer<'static>,
    counts: Arc<Counts>,
}

/// Connections between the accept and the close, and what they were used for.
#[derive(Debug, Default)]
struct Counts {
    open: AtomicU32,
    most: AtomicU32,
    opened: AtomicU32,
    requests: AtomicU32,
    /// The client has an answer.
    received: Notify,
    /// The client has ended its side after a `close_notify`.
    left: Notify,
}

// === impl TlsServer ===

impl TlsServer {
    async fn start(act: Act) -> Self {
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed([String::from("localhost")]).expect("a certificate");
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let tls = ServerConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .expect("ring knows them")
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .expect("they belong together");
        let tls = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let counts = Arc::<Counts>::default();
        let counted = Arc::clone(&counts);
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("loopback accepts");
                counted.opened.fetch_add(1, SeqCst);
                let open = counted.open.fetch_add(1, SeqCst) + 1;
                counted.most.fetch_max(open, SeqCst);
                let (tls, counts) = (tls.clone(), Arc::clone(&counted));
                tokio::spawn(async move {
                    // The connection is forgotten no later than it closes, as at gateways.
                    let socket = serve(socket, &tls, act, &counts).await;
                    counts.open.fetch_sub(1, SeqCst);
                    drop(socket);
                });
            }
        });
        Self {
            uri: format!("https://localhost:{port}/").parse().expect("a URI"),
            certificate: cert.der().clone(),
            counts,
        }
    }

    fn most(&self) -> u32 {
        self.counts.most.load(SeqCst)
    }

    fn opened(&self) -> u32 {
        self.counts.opened.load(SeqCst)
    }

    /// Sends a `close_notify` to a client that has its answer, and waits until the client leaves.
    async fn close_notify(&self) {
        self.counts.received.notify_one();
        let left = timeout(Duration::from_secs(30), self.counts.left.notified());
        left.await.expect("the client reads the close_notify");
    }
}

async fn serve(
    mut socket: TcpStream,
    tls: &TlsAcceptor,
    act: Act,
    counts: &Counts,
) -> io::Result<TlsStream<TcpStream>> {
    if act == Act::Refuse {
        socket.read_u8().await?;
        // RFC 8446, section 6: a record with an alert, fatal, handshake_failure.
        socket.write_all(&[21, 3, 3, 0, 2, 2, 40]).await?;
        sleep(Duration::from_millis(100)).await;
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let mut socket = tls.accept(socket).await?;
    let mut head = Vec::new();
    loop {
        while !head.ends_with(b"\r\n\r\n") {
            if socket.read_buf(&mut head).await? == 0 {
                return Ok(socket);
            }
        }
        head.clear();
        counts.requests.fetch_add(1, SeqCst);
        let length = BODY.len();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{BODY}");
        socket.write_all(answer.as_bytes()).await?;
        socket.flush().await?;
        if act == Act::Notify {
            counts.received.notified().await;
            socket.get_mut().1.send_close_notify();
            socket.flush().await?;
            // The client ends with a `close_notify` or without one.
            let _ended = socket.read_buf(&mut head).await;
            counts.left.notify_one();
            sleep(Duration::from_millis(500)).await;
            return Ok(socket);
        }
    }
}

/// TLS over a limited connector.
fn tls<C>(servers: &[&TlsServer], limited: C) -> HttpsConnector<C> {
    let mut roots = RootCertStore::empty();
    for server in servers {
        roots
            .add(server.certificate.clone())
            .expect("a certificate");
    }
    let config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("ring knows them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_only()
        .enable_http1()
        .wrap_connector(limited)
}

fn limited(limiter: &Limiter) -> ConnectionLimit<HttpConnector> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    ConnectionLimitLayer::new(limiter.clone()).layer(tcp)
}

fn pool<C>(connector: C) -> Pool<C>
where
    C: Connect + Clone,
{
    Client::builder(TokioExecutor::new()).build(connector)
}

type Pool<C> = Client<C, Empty<Bytes>>;

#[tokio::test]
async fn cancelled_tls_connects_stay_within_the_limit() {
    let server = TlsServer::start(Act::Answer).await;
    // Each call has a connect of its own.
    let client = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .build(tls(&[&server], limited(&limiter(3))));
    // Measures how long a call takes on this machine.
    let before = Instant::now();
    let first = get(client.clone(), server.uri.clone()).await;
    assert_eq!(first.expect("an answer"), BODY);
    let usual = before.elapsed();
    let mut rng = fastrand::Rng::with_seed(7);
    // A connect that is given up keeps its permit for a second, in which nothing is opened.
    while server.opened() <= 20 {
        let mut calls = JoinSet::new();
        for n in 0..50 {
            let call = get(client.clone(), server.uri.clone());
            // Cancels calls within the connect, the handshake and the answer.
            let patience = usual.mul_f64(rng.f64() * 1.5);
            calls.spawn(async move {
                sleep(usual / 4 * n).await;
                let _late = timeout(patience, call).await;
            });
        }
        calls.join_all().await;
    }
    assert!(server.most() <= 3, "{}", server.most());
}

/// A proxy that opens tunnels, or refuses to and closes a tenth of a second later, and counts them.
async fn proxy(opens: bool) -> (Uri, Arc<Counts>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let counts = Arc::<Counts>::default();
    let counted = Arc::clone(&counts);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.expect("loopback accepts");
            let open = counted.open.fetch_add(1, SeqCst) + 1;
            counted.most.fetch_max(open, SeqCst);
            let counts = Arc::clone(&counted);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    socket.read_buf(&mut head).await.expect("a request");
                }
                counts.requests.fetch_add(1, SeqCst);
                let head = String::from_utf8(head).expect("text");
                let host = head.split(' ').nth(1).expect("a host");
                let status = if opens { "200 OK" } else { "403 Forbidden" };
                let answer = format!("HTTP/1.1 {status}\r\n\r\n");
                socket
                    .write_all(answer.as_bytes())
                    .await
                    .expect("an open socket");
                if opens {
                    let mut upstream = TcpStream::connect(host).await.expect("it listens");
                    // An error ends the tunnel as well.
                    let _ended = copy_bidirectional(&mut socket, &mut upstream).await;
                } else {
                    sleep(Duration::from_millis(100)).await;
                }
                counts.open.fetch_sub(1, SeqCst);
            });
        }
    });
    let uri = format!("http://{address}/").parse().expect("a URI");
    (uri, counts)
}

/// A client of one connection whose tunnels a proxy counts.
async fn tunnelled(
    servers: &[&TlsServer],
    opens: bool,
) -> (
    Pool<HttpsConnector<Tunnel<ConnectionLimit<HttpConnector>>>>,
    Arc<Counts>,
) {
    let (proxy, counts) = proxy(opens).await;
    let tunnel = Tunnel::new(proxy, limited(&limiter(1)));
    (pool(tls(servers, tunnel)), counts)
}

/// One tunnel at a time, as the proxy counts them.
#[tokio::test]
async fn ended_tunnel_keeps_its_permit_until_the_proxy_closes() {
    let mut seen = Vec::new();
    let ends = [
        (false, Act::Answer),
        (true, Act::Refuse),
        (true, Act::Notify),
    ];
    for (opens, act) in ends {
        let server = TlsServer::start(act).await;
        let (client, counts) = tunnelled(&[&server], opens).await;
        for _ in 0..3 {
            let body = get(client.clone(), server.uri.clone()).await;
            assert_eq!(body.is_ok(), act == Act::Notify, "{act:?}: {body:?}");
            if act == Act::Notify {
                server.close_notify().await;
            }
        }
        seen.push([&counts.most, &counts.requests].map(|count| count.load(SeqCst)));
    }
    assert_eq!(seen, [[1, 3]; 3]);
}
