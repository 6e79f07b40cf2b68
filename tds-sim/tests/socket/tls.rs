//! TLS: which versions, which certificate, which protocols.

use std::{fs, sync::Arc};

use rustls::{
    ClientConfig, ProtocolVersion, RootCertStore, SupportedProtocolVersion,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    version::{TLS12, TLS13},
};
use tds_sim::{Config, Server};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

async fn start() -> Server {
    let mut config = Config::default();
    config.tls = true;
    Server::start(config).await.unwrap()
}

async fn connect(
    server: &Server,
    url: &str,
    name: &'static str,
    version: &'static SupportedProtocolVersion,
    alpn: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(server.ca_file().unwrap()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let tcp = TcpStream::connect(url.strip_prefix("https://").unwrap())
        .await
        .unwrap();
    let name = ServerName::try_from(name).unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, tcp)
        .await
}

#[tokio::test]
async fn both_versions_and_both_names_are_served() {
    let server = start().await;
    for (version, known) in [
        (&TLS12, ProtocolVersion::TLSv1_2),
        (&TLS13, ProtocolVersion::TLSv1_3),
    ] {
        for name in ["localhost", "127.0.0.1"] {
            for url in [server.base_url(), server.auth_url()] {
                let mut stream = connect(&server, url, name, version, &[]).await.unwrap();
                assert_eq!(stream.get_ref().1.protocol_version(), Some(known));
                let request = b"GET /v1/live/a HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
                stream.write_all(request).await.unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.unwrap();
                assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
            }
        }
    }
    assert!(
        connect(&server, server.base_url(), "example.org", &TLS13, &[])
            .await
            .is_err()
    );
    assert!(server.admin_url().starts_with("http://"));
}

#[tokio::test]
async fn http2_is_negotiated_if_the_client_offers_it() {
    let server = start().await;
    for (offered, agreed) in [(&["h2", "http/1.1"][..], "h2"), (&["http/1.1"], "http/1.1")] {
        let stream = connect(&server, server.base_url(), "localhost", &TLS13, offered).await;
        assert_eq!(
            stream.unwrap().get_ref().1.alpn_protocol(),
            Some(agreed.as_bytes())
        );
    }
}

#[tokio::test]
async fn an_older_version_is_refused() {
    let server = start().await;
    let address = server.base_url().strip_prefix("https://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A ClientHello of TLS 1.1 with one cipher suite and one signature scheme.
    let mut hello = vec![0x16, 3, 1, 0, 55, 1, 0, 0, 51, 3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0xc0, 0x13, 1, 0]);
    hello.extend([0, 8, 0, 13, 0, 4, 0, 2, 4, 1]);
    stream.write_all(&hello).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    // A fatal alert: protocol_version.
    assert_eq!(answer.get(..1), Some(&[0x15][..]));
    assert!(answer.ends_with(&[2, 70]), "{answer:?}");
}

#[tokio::test]
async fn ca_file_is_removed_with_the_server() {
    let server = start().await;
    let file = server.ca_file().unwrap().to_owned();
    assert!(
        fs::read_to_string(&file)
            .unwrap()
            .starts_with("-----BEGIN CERTIFICATE-----")
    );
    server.shutdown().await;
    assert!(!file.exists());
}
