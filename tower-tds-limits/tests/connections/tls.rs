//! TLS above the limit: a server counts TCP connections.

use std::{io, sync::Arc};

use bytes::Bytes;
use http::Uri;
use http_body_util::Empty;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rcgen::CertifiedKey;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tower::Layer;
use tower_tds_limits::{ConnectionLimit, ConnectionLimitLayer, Limiter};

use crate::connections::{
    get, limiter,
    listen::{Accepted, listen},
    server::BODY,
};

struct TlsServer {
    uri: Uri,
    certificate: CertificateDer<'static>,
    accepted: Arc<Accepted>,
}

// === impl TlsServer ===

impl TlsServer {
    async fn start() -> Self {
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
        let (address, accepted) = listen(move |socket| serve(socket, tls.clone())).await;
        let uri = format!("https://localhost:{}/", address.port());
        Self {
            uri: uri.parse().expect("a URI"),
            certificate: cert.der().clone(),
            accepted,
        }
    }
}

async fn serve(socket: TcpStream, tls: TlsAcceptor) -> io::Result<TlsStream<TcpStream>> {
    let mut socket = tls.accept(socket).await?;
    let mut head = Vec::new();
    loop {
        while !head.ends_with(b"\r\n\r\n") {
            if socket.read_buf(&mut head).await? == 0 {
                return Ok(socket);
            }
        }
        head.clear();
        let length = BODY.len();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{BODY}");
        socket.write_all(answer.as_bytes()).await?;
        socket.flush().await?;
    }
}

/// TLS over a limited connector.
fn tls(server: &TlsServer, limiter: &Limiter) -> HttpsConnector<ConnectionLimit<HttpConnector>> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let mut roots = RootCertStore::empty();
    roots
        .add(server.certificate.clone())
        .expect("a certificate");
    let config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("ring knows them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_only()
        .enable_http1()
        .wrap_connector(ConnectionLimitLayer::new(limiter.clone()).layer(tcp))
}

#[tokio::test]
async fn cancelled_tls_connects_stay_within_the_limit() {
    let server = TlsServer::start().await;
    // Each call has a connect of its own.
    let client = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .build::<_, Empty<Bytes>>(tls(&server, &limiter(3)));
    // Measures how long a call takes on this machine.
    let before = Instant::now();
    let first = get(client.clone(), server.uri.clone()).await;
    assert_eq!(first.expect("an answer"), BODY);
    let usual = before.elapsed();
    let mut rng = fastrand::Rng::with_seed(7);
    // A connect that is given up keeps its permit for a second, in which nothing is opened.
    while server.accepted.all() <= 20 {
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
    assert!(server.accepted.most() <= 3, "{:?}", server.accepted);
}
