//! Certificates: one that the client shows, and a configuration of the user's own.

#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rcgen::{CertifiedKey, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};
use tds_sim::{Config, Server};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tower_tds::{Builder, Client, Credentials, Error, Kind};

fn certificate(name: &str) -> CertifiedKey<KeyPair> {
    rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate")
}

/// A service that answers only who shows `shown`: its address, its certificate, and how many it answered.
async fn asks_for(shown: &CertifiedKey<KeyPair>) -> (String, String, Arc<AtomicU32>) {
    let own = certificate("localhost");
    let mut known = RootCertStore::empty();
    known.add(shown.cert.der().clone()).expect("a certificate");
    let provider = Arc::new(ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(known), Arc::clone(&provider));
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring knows them")
        .with_client_cert_verifier(verifier.build().expect("a root"))
        .with_single_cert(vec![own.cert.der().clone()], key)
        .expect("they belong together");
    let tls = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let answered = Arc::<AtomicU32>::default();
    let count = Arc::clone(&answered);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            // Who shows nothing is told so, and left.
            let Ok(socket) = tls.accept(socket).await else {
                continue;
            };
            let count = Arc::clone(&count);
            let answer = service_fn(move |_: Request<Incoming>| {
                count.fetch_add(1, SeqCst);
                async { Ok::<_, Error>(Response::new(String::from("bus 307"))) }
            });
            let served = http1::Builder::new().serve_connection(TokioIo::new(socket), answer);
            tokio::spawn(served);
        }
    });
    let url = format!("https://localhost:{port}");
    (url, own.cert.pem(), answered)
}

fn builder(tokens: &Server, url: &str) -> Builder {
    let credentials = Credentials::new(tokens.client_id(), tokens.client_secret());
    let credentials = credentials.expect("the simulator's are usable");
    Client::builder(tokens.auth_url(), url, credentials).loopback_http()
}

#[tokio::test]
async fn a_certificate_is_shown_to_a_service_that_asks_for_one() {
    let tokens = Server::start(Config::default()).await.expect("a free port");
    let mine = certificate("timetable");
    let (url, authority, answered) = asks_for(&mine).await;
    let believes = || builder(&tokens, &url).root_certificate(authority.as_bytes());
    let key = mine.signing_key.serialize_pem();
    let client = believes().client_certificate(mine.cert.pem().as_bytes(), key.as_bytes());
    let client = client.build().expect("they belong together");
    let bus = client.get("/v1/live/bus").await.expect("data").text().await;
    assert_eq!(bus.expect("a whole body"), "bus 307");
    assert_eq!(answered.load(SeqCst), 1);

    let nobody = believes().build().expect("all of it can be used");
    let error = nobody.get("/v1/live/bus").await.map(drop);
    let error = error.expect_err("no certificate was shown");
    assert_eq!((error.kind(), error.attempts()), (Kind::Tls, 1), "{error}");
    let line = error.to_string();
    assert!(line.contains("Builder::client_certificate"), "{line}");
    assert_eq!(answered.load(SeqCst), 1);
}

#[tokio::test]
async fn a_configuration_of_ones_own_is_the_one_that_is_used() {
    let mut config = Config::default();
    config.tls = tds_sim::Tls::On;
    let server = Server::start(config).await.expect("a free port");
    let authority = std::fs::read(server.ca_file().expect("it speaks TLS")).expect("it is there");
    let mut roots = RootCertStore::empty();
    for root in certificates(&authority) {
        roots.add(root).expect("a certificate");
    }
    let with = |roots: RootCertStore| {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring knows them")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = builder(&server, server.base_url()).tls(config).build();
        client.expect("a configuration")
    };
    with(roots).get("/v1/live/bus").await.expect("data");
    let error = with(RootCertStore::empty()).get("/v1/live/bus").await;
    let error = error.map(drop).expect_err("it believes nobody");
    assert_eq!(error.kind(), Kind::Tls, "{error}");
}

fn certificates(pem: &[u8]) -> Vec<rustls::pki_types::CertificateDer<'static>> {
    use rustls::pki_types::pem::PemObject;
    let read: Result<_, _> = rustls::pki_types::CertificateDer::pem_slice_iter(pem).collect();
    read.expect("it is PEM")
}
