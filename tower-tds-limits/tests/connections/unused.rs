//! Sockets that carried no request, as hyper closes them: it shuts its side down before it drops
//! the socket, and TLS above sends a `close_notify` first.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Uri;
use http_body_util::Empty;
use hyper::{
    client::conn::http1,
    rt::{Read, Write},
};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::Connection;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    version::{TLS12, TLS13},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream, duplex},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{Instant, sleep},
};
use tokio_rustls::TlsAcceptor;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_tds_limits::{ConnectionLimit, ConnectionLimitLayer, Limiter, Limits, Quota, Rules};

use crate::{count, net::Pipe};

/// Two requests a second, and room for six sockets.
fn limiter() -> Limiter {
    let limits = Limits::new(Quota::per_second(count(2))).rules(Rules::window());
    Limiter::new(limits.connections(count(7)))
}

/// A connector whose other ends are given to `served`.
fn connector(
    limiter: &Limiter,
    served: UnboundedSender<DuplexStream>,
) -> ConnectionLimit<
    impl Service<
        Uri,
        Response = Pipe,
        Error = io::Error,
        Future: Future<Output = io::Result<Pipe>> + Send + 'static,
    > + Clone
    + Send
    + 'static,
> {
    let connect = service_fn(move |_: Uri| {
        let (client, server) = duplex(16 * 1024);
        served.send(server).expect("the server runs");
        async move { Ok(Pipe::new(client)) }
    });
    ConnectionLimitLayer::new(limiter.clone()).layer(connect)
}

/// Makes `sockets` connections of hyper, lets all of them go at once, and returns how many the
/// server has seen end half a second later, and in each of the next seconds.
async fn ends<C>(connector: C, sockets: usize, mut seen: UnboundedReceiver<Instant>) -> Vec<usize>
where
    C: Service<Uri, Error: std::fmt::Debug> + Clone,
    C::Response: Read + Write + Connection + Send + Unpin + 'static,
{
    let mut senders = Vec::new();
    for _ in 0..sockets {
        let uri = Uri::from_static("https://localhost/");
        let socket = connector.clone().oneshot(uri).await.expect("there is room");
        // As hyper-util does once.
        let _connected = socket.connected();
        let (sender, connection) = http1::handshake::<_, Empty<Bytes>>(socket)
            .await
            .expect("it is open");
        tokio::spawn(connection);
        senders.push(sender);
    }
    sleep(Duration::from_millis(10)).await;
    drop(senders);
    let mut counts = Vec::new();
    sleep(Duration::from_millis(500)).await;
    while counts.iter().sum::<usize>() < sockets {
        let mut ended = 0;
        while seen.try_recv().is_ok() {
            ended += 1;
        }
        counts.push(ended);
        sleep(Duration::from_millis(1_003)).await;
    }
    counts
}

/// Reads what the client sends after its handshake, until its `close_notify` or its end.
async fn read_to_end(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    ended: UnboundedSender<Instant>,
) {
    let mut request = Vec::new();
    // The end without a `close_notify` is an error of TLS.
    let _ended = socket.read_to_end(&mut request).await;
    assert!(request.is_empty(), "{request:?}");
    ended.send(Instant::now()).ok();
}

#[tokio::test(start_paused = true)]
async fn hyper_closes_a_batch_of_unused_sockets_at_the_rate_of_the_quota() {
    let (ended, seen) = unbounded_channel();
    let (served, mut sockets) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(socket) = sockets.recv().await {
            tokio::spawn(read_to_end(socket, ended.clone()));
        }
    });
    let limiter = limiter();
    assert_eq!(ends(connector(&limiter, served), 6, seen).await, [2, 2, 2]);
    assert_eq!(limiter.snapshot().certificate, 2);
}

async fn over_tls(version: &'static SupportedProtocolVersion) {
    let pair =
        rcgen::generate_simple_self_signed([String::from("localhost")]).expect("a certificate");
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pair.signing_key.serialize_der()));
    let certificate = pair.cert.der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("a certificate");
    let server = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_protocol_versions(&[version])
        .expect("ring knows it")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they belong together");
    let client = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_protocol_versions(&[version])
        .expect("ring knows it")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (ended, seen) = unbounded_channel();
    let (served, mut sockets) = unbounded_channel();
    tokio::spawn(async move {
        let tls = TlsAcceptor::from(Arc::new(server));
        while let Some(socket) = sockets.recv().await {
            let (tls, ended) = (tls.clone(), ended.clone());
            tokio::spawn(async move {
                let socket = tls.accept(socket).await.expect("a handshake");
                read_to_end(socket, ended).await;
            });
        }
    });
    let limiter = limiter();
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(client)
        .https_only()
        .enable_http1()
        .wrap_connector(connector(&limiter, served));
    assert_eq!(ends(connector, 6, seen).await, [2, 2, 2]);
    assert_eq!(limiter.snapshot().certificate, 2);
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_unused_sockets_under_tls_closes_at_the_rate_of_the_quota() {
    over_tls(&TLS12).await;
    over_tls(&TLS13).await;
}
