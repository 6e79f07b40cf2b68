//! Certificates of the server that fail, and one of the client. The network is in memory.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::layer::support;

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client, server};
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
    server::WebPkiClientVerifier,
};
use support::{Body, SECRET, builder};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tower::{BoxError, service_fn, util::BoxCloneService};
use tower_oidc_cc::{Credentials, TokenEndpoint, TokenSource};

const HOST: &str = "sso.example.com";

/// A certificate that signs itself, and its key.
struct Identity {
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

// === impl Identity ===

impl Identity {
    fn of(name: &str) -> Self {
        Self::made(CertificateParams::new([name.to_owned()]).unwrap())
    }

    fn made(params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self {
            certificate: certificate.der().clone(),
            key,
        }
    }

    fn chain(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        (vec![self.certificate.clone()], key)
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        roots
    }
}

/// Certificate and the body that a client sent.
type Seen = (Option<CertificateDer<'static>>, String);

/// A server in memory that records the certificates and the bodies it receives.
#[derive(Clone)]
struct Server {
    config: Arc<ServerConfig>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

// === impl Server ===

impl Server {
    /// A server that requires no client certificate, or a certificate signed by `trusts`.
    fn new(identity: &Identity, trusts: Option<RootCertStore>) -> Self {
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = match trusts {
            None => config.with_no_client_auth(),
            Some(roots) => {
                let provider = Arc::new(default_provider());
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                config.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let (chain, key) = identity.chain();
        Self {
            config: Arc::new(config.with_single_cert(chain, key).unwrap()),
            seen: Arc::default(),
        }
    }

    fn bodies(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter().map(|(_, body)| body.clone()).collect()
    }

    /// A client that connects anew for each request.
    fn client(&self, config: &ClientConfig) -> Transport {
        let connector = TlsConnector::from(Arc::new(config.clone()));
        let server = self.clone();
        BoxCloneService::new(service_fn(move |request: Request<Body>| {
            let (connector, server) = (connector.clone(), server.clone());
            async move {
                let (near, far) = tokio::io::duplex(16 * 1024);
                drop(tokio::spawn(server.serve(far)));
                let name = ServerName::try_from(HOST)?;
                let tls = connector.connect(name, near).await?;
                let (mut sender, connection) =
                    client::conn::http1::handshake(TokioIo::new(tls)).await?;
                drop(tokio::spawn(connection));
                let response = sender.send_request(request).await?;
                let (head, body) = response.into_parts();
                let body = Full::new(body.collect().await?.to_bytes());
                Ok(Response::from_parts(head, body))
            }
        }))
    }

    async fn serve(self, stream: tokio::io::DuplexStream) -> Result<(), BoxError> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.config));
        let tls = acceptor.accept(stream).await?;
        let shown = tls.get_ref().1.peer_certificates().map(|c| c[0].clone());
        let service = hyper::service::service_fn(|request: Request<Incoming>| {
            let (shown, seen) = (shown.clone(), Arc::clone(&self.seen));
            async move {
                let body = request.into_body().collect().await?.to_bytes();
                let body = String::from_utf8(body.to_vec()).unwrap();
                seen.lock().unwrap().push((shown, body));
                let reply = r#"{"access_token":"t","token_type":"Bearer","expires_in":1000}"#;
                Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from(reply))))
            }
        });
        let connection = server::conn::http1::Builder::new();
        connection
            .serve_connection(TokioIo::new(tls), service)
            .await?;
        Ok(())
    }
}

type Transport = BoxCloneService<Request<Body>, Response<Full<Bytes>>, BoxError>;

fn trusting(
    roots: RootCertStore,
) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
}

#[tokio::test(start_paused = true)]
async fn certificate_error_is_named_and_sends_no_secret() {
    let mut expired = CertificateParams::new([HOST.to_owned()]).unwrap();
    expired.not_after = rcgen::date_time_ymd(2000, 1, 1);
    let expired = Identity::made(expired);
    let (known, other) = (Identity::of(HOST), Identity::of("elsewhere.example.com"));
    for (server, roots, reason) in [
        (&known, RootCertStore::empty(), "UnknownIssuer"),
        (&known, Identity::of(HOST).roots(), "certificate"),
        (&other, other.roots(), "certificate not valid for name"),
        (&expired, expired.roots(), "certificate expired"),
    ] {
        let server = Server::new(server, None);
        let config = trusting(roots).with_no_client_auth();
        let tokens = builder().build(server.client(&config));
        let error = tokens.ready().await.unwrap_err();
        assert!(error.is_transient(), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
        // The secret was not sent.
        assert!(server.bodies().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn connector_presents_the_client_certificate() {
    let (server, own) = (Identity::of(HOST), Identity::of("client"));
    let (chain, key) = own.chain();
    let config = trusting(server.roots())
        .with_client_auth_cert(chain, key)
        .unwrap();
    let server = Server::new(&server, Some(own.roots()));
    let uri = Uri::from_static("https://sso.example.com/token");
    let tokens = |credentials: Credentials| {
        let endpoint = TokenEndpoint::new(uri.clone()).unwrap();
        TokenSource::builder(endpoint, credentials).build(server.client(&config))
    };
    tokens(Credentials::new("client", SECRET).unwrap())
        .ready()
        .await
        .unwrap();
    let form = format!("grant_type=client_credentials&client_id=client&client_secret={SECRET}");
    let shown = (Some(own.certificate.clone()), form);
    assert_eq!(*server.seen.lock().unwrap(), [shown]);
}
