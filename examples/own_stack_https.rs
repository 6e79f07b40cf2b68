//! All layers around an HTTP client of your own, over https: TLS is around the limited sockets.

#![expect(clippy::print_stdout, reason = "the output of a program")]

use std::{fs, sync::Arc};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use tds_sim::{Config, Server};
use tower::{BoxError, Layer, ServiceExt};
use tower_tds::{Client, Credentials, layers::limits::ConnectionLimitLayer};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut config = Config::default();
    config.tls = true;
    let server = Server::start(config).await?;
    // The simulator signs its own certificate. For a real service, fill the roots from the crate
    // rustls-native-certs or webpki-roots; the `Client` has those of the platform.
    let ca = fs::read(server.ca_file().ok_or("no TLS")?)?;
    let credentials = Credentials::new(server.client_id(), server.client_secret())?;
    let tds = Client::builder(server.auth_url(), server.base_url(), credentials)
        .root_certificate(&ca)
        .build()?;

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&ca)?)?;
    // Name the cryptography provider: if two crates of your program each bring one, rustls panics
    // instead of choosing.
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    // This connector opens sockets for any scheme, because TLS is the job of the connector around
    // it.
    tcp.enforce_http(false);
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(tds.limiter().limits().tcp_user_timeout()));
    // A socket takes its permit before the handshake, because the service also counts connections
    // whose handshake fails.
    let sockets = ConnectionLimitLayer::new(tds.limiter().clone()).layer(tcp);
    let https = HttpsConnectorBuilder::new().with_tls_config(tls);
    let https = https.https_only().enable_http1().wrap_connector(sockets);
    let http = Http::builder(TokioExecutor::new()).build(https);
    let service = tds.layer().layer(http);

    let target = format!("{}/v1/live/bus", server.base_url());
    let request = Request::get(target).body(Empty::<Bytes>::new())?;
    let body = service
        .oneshot(request)
        .await?
        .into_body()
        .collect()
        .await?;
    print!("{}", String::from_utf8_lossy(&body.to_bytes()));
    let seen = server.ledger().summary();
    println!(
        "the service saw {} call and {} token request",
        seen.data_calls, seen.token_posts
    );
    Ok(())
}
