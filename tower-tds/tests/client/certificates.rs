//! Root certificates as people have them, a CA's certificate as a server's, and bodies over TLS
//! that end with their connection.

use std::{net::SocketAddr, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedKey, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::{io::AsyncWriteExt as _, net::TcpListener};
use tokio_rustls::TlsAcceptor;
use tower_tds::{BuildError, Client, Credentials, Kind, Limits};
use tracing_subscriber::fmt;

use crate::client::{
    log::{Log, listen},
    server,
};

fn build(pem: &[u8]) -> Result<Client, BuildError> {
    let credentials = Credentials::new("client", "secret").expect("usable");
    let url = "https://localhost";
    Client::builder(url, url, credentials)
        .root_certificate(pem)
        .build()
}

fn certificate() -> CertifiedKey<KeyPair> {
    rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate")
}

/// Builds with a bundle, and returns the log.
fn log_of(bundle: &[u8]) -> String {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = fmt().with_writer(move || writer.clone()).with_ansi(false);
    let listening = listen(subscriber.finish());
    build(bundle).expect("a usable block");
    drop(listening);
    log.text()
}

#[test]
fn unusable_block_of_a_bundle_is_skipped_with_a_warning() {
    let made = certificate();
    let good = made.cert.pem();
    let key = made.signing_key.serialize_pem();
    let no_end = good.lines().take(4).collect::<Vec<_>>().join("\n");
    let no_base64 = good.replace("MII", "M!I");
    for (broken, why) in [
        (&no_base64, "a block is not base64"),
        (&no_end, "a block has no END line"),
        (
            &key.replace("PRIVATE KEY", "CERTIFICATE"),
            "it is no certificate",
        ),
        (&key, "another kind of block"),
    ] {
        for (n, bundle) in (1..).zip([
            format!("{broken}\n{good}"),
            format!("# comment\n{good}\n{broken}\n{good}"),
            format!("{good}{good}{broken}"),
        ]) {
            let log = log_of(bundle.as_bytes());
            let said = format!("WARN tower_tds::http::tls: block {n} of a root certificate");
            assert!(log.contains(&said) && log.contains(why), "{why}: {log}");
            assert_eq!(log.lines().count(), 1, "{log}");
        }
    }
    assert_eq!(log_of(good.as_bytes()), "");
}

#[test]
fn byte_order_mark_hides_no_certificate() {
    let good = certificate().cert.pem();
    assert_eq!(log_of(format!("\u{feff}{good}").as_bytes()), "");
}

#[test]
fn root_certificate_error_names_what_was_found() {
    let made = certificate();
    let pem = made.cert.pem();
    let wide = pem.encode_utf16().flat_map(u16::to_le_bytes);
    let wide: Vec<u8> = [0xff, 0xfe].into_iter().chain(wide).collect();
    for (file, found) in [
        (&b""[..], "the file is empty"),
        (made.cert.der(), "it is DER; convert it with `openssl x509"),
        (&wide, "it is UTF-16; save it as UTF-8"),
        (b"\n\n", "it is no PEM"),
        (b"<html>login</html>", "it is no PEM"),
        (
            made.signing_key.serialize_pem().as_bytes(),
            "block 1: it is another kind of block than CERTIFICATE",
        ),
        (
            made.cert.pem().replace("MII", "M!I").as_bytes(),
            "block 1: a block is not base64",
        ),
    ] {
        let error = build(file).expect_err(found).to_string();
        assert!(
            error.starts_with("a root certificate is not usable: give it in PEM"),
            "{error}"
        );
        assert!(error.contains(found), "{error}");
    }
}

/// Serves the bytes to each request over TLS, after a token to each POST. Returns its address and
/// its certificate.
async fn serve(is_ca: bool, answer: &'static [u8], is_notified: bool) -> (SocketAddr, String) {
    let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    if is_ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("they are known")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key);
    let acceptor = TlsAcceptor::from(Arc::new(config.expect("a certificate")));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let request = server::read(&mut stream).await.expect("a request");
            let token = r#"{"access_token":"t","expires_in":86400,"token_type":"Bearer"}"#;
            let token = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{token}",
                token.len()
            );
            let is_post = request.starts_with("POST");
            let said = if is_post { token.as_bytes() } else { answer };
            stream.write_all(said).await.expect("it reads");
            if is_post || is_notified {
                stream.shutdown().await.expect("an open socket");
            } else {
                stream.flush().await.expect("an open socket");
                stream
                    .into_inner()
                    .0
                    .shutdown()
                    .await
                    .expect("an open socket");
            }
        }
    });
    (address, certificate.pem())
}

fn client(address: SocketAddr, pem: &str) -> Client {
    let credentials = Credentials::new("client", "secret").expect("usable");
    let url = format!("https://localhost:{}", address.port());
    let client = Client::builder(&url, &url, credentials).limits(Limits::default());
    let client = client.root_certificate(pem.as_bytes()).build();
    client.expect("a certificate")
}

#[tokio::test]
async fn certificate_of_a_ca_as_a_servers_is_named() {
    let (address, pem) = serve(true, b"", true).await;
    let error = client(address, &pem)
        .get("/")
        .await
        .expect_err("it is a CA's");
    assert_eq!(error.kind(), Kind::Tls, "{error}");
    let text = error.to_string();
    assert!(
        text.contains("uses a CA's certificate as its own"),
        "{text}"
    );
}

#[tokio::test]
async fn body_over_tls_ends_with_a_close_notify_or_is_an_error() {
    let answer = b"HTTP/1.1 200 OK\r\n\r\nall of it";
    let (address, pem) = serve(false, answer, true).await;
    let response = client(address, &pem).get("/").await.expect("a success");
    let body = response.bytes().await;
    assert_eq!(body.expect("RFC 9112, section 9.8"), "all of it");
    let (address, pem) = serve(false, answer, false).await;
    let response = client(address, &pem).get("/").await.expect("a success");
    let error = response.bytes().await.expect_err("no close_notify");
    assert_eq!(error.kind(), Kind::Truncated, "{error}");
}
