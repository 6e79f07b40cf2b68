//! Transport errors, each made by a server on a socket.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::channel::Channel;
use http_body_util::{BodyExt, Full};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tower::buffer::BufferLayer;
use tower::timeout::TimeoutLayer;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt};
use tower_http::decompression::DecompressionLayer;
use tower_tds_errors::{ClassifyLayer, Error, Kind, Sent};

use crate::server::{self, Act, Server};
use crate::{fails, get, once};

#[tokio::test]
async fn a_connection_that_ends_or_speaks_no_http_may_have_taken_the_request() {
    let no_http = "SSH-2.0-OpenSSH_9.9\r\n\r\n";
    for (act, kind) in [
        (Act::WriteAndReset(Vec::new()), Kind::Reset),
        (Act::WriteAndClose(Vec::new()), Kind::Reset),
        (
            Act::WriteAndClose("HTTP/1.1 200 OK\r\nconte".into()),
            Kind::Reset,
        ),
        (Act::Write(no_http.into()), Kind::Malformed),
    ] {
        let (error, _) = fails(act).await;
        assert_eq!((error.kind(), error.sent()), (kind, Sent::Unknown));
        assert_eq!(error.is_retryable(), kind == Kind::Reset);
        assert!(error.to_string().starts_with("GET "), "{error}");
    }
}

/// The task of the connection ends before the request, or while it waits.
#[tokio::test]
async fn a_request_on_a_connection_whose_task_has_ended_is_unsent_and_otherwise_it_is_reset() {
    for (is_closed, expected) in [
        (true, (Kind::Connect, Sent::Never)),
        (false, (Kind::Reset, Sent::Unknown)),
    ] {
        let (near, mut far) = tokio::io::duplex(1024);
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(near));
        let (mut send, connection) = handshake.await.unwrap();
        let connection = (!is_closed).then(|| tokio::spawn(connection));
        let client = tower::service_fn(move |request| send.send_request(request));
        let call = tokio::spawn(ClassifyLayer::new().layer(client).oneshot(get("/v2")));
        if let Some(connection) = connection {
            far.read_u8().await.unwrap();
            connection.abort();
        }
        let error = call.await.unwrap().map(drop).unwrap_err();
        assert_eq!((error.kind(), error.sent()), expected);
    }
}

#[tokio::test]
async fn unsupported_or_missing_scheme_is_fatal() {
    let tls = || {
        HttpsConnectorBuilder::new()
            .with_tls_config(trusting(RootCertStore::empty()))
            .https_only()
            .enable_http1()
            .build()
    };
    let client = Client::builder(TokioExecutor::new()).build(tls());
    let client = ClassifyLayer::new().layer(client);
    let bare = ClassifyLayer::new().layer(server::client());
    for error in [
        bare.clone().oneshot(get("/v2")).await,
        bare.clone().oneshot(get("https://127.0.0.1:1/")).await,
        bare.oneshot(get("ftp://127.0.0.1:1/")).await,
        client.clone().oneshot(get("http://127.0.0.1:1/")).await,
        client.oneshot(get("ftp://127.0.0.1:1/")).await,
    ] {
        let error = error.map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidRequest, "{error:?}");
        assert!(!error.is_retryable());
        assert!(
            error
                .to_string()
                .contains("a scheme that the client supports")
        );
        once(&error);
    }
}

#[tokio::test]
async fn failing_request_body_is_fatal_and_keeps_its_cause() {
    for pieces in [0, 1, 3] {
        let server = Server::start(Act::WriteAndHold(Vec::new())).await;
        let client = Client::builder(TokioExecutor::new()).build_http();
        let (mut sender, body) = Channel::<Bytes, io::Error>::new(4);
        for _ in 0..pieces {
            sender.send_data("piece".into()).await.unwrap();
        }
        sender.abort(io::Error::other("the disk is gone"));
        let request = Request::put(server.uri()).body(body);
        let call = ClassifyLayer::new().layer(client).oneshot(request.unwrap());
        let error = call.await.map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidRequest, "{pieces}: {error:?}");
        assert!(!error.is_retryable());
        assert!(once(&error).ends_with("the disk is gone"), "{error:?}");
    }
}

#[tokio::test]
async fn buffer_does_not_change_the_kind_of_a_failure() {
    /// Never becomes ready, which ends the buffer permanently.
    #[derive(Clone)]
    struct Broken;
    impl Service<Request<Full<Bytes>>> for Broken {
        type Response = Response<Full<Bytes>>;
        type Error = io::Error;
        type Future = std::future::Pending<io::Result<Self::Response>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(ErrorKind::ConnectionRefused.into()))
        }

        fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
            std::future::pending()
        }
    }
    let buffered = ServiceBuilder::new()
        .layer(ClassifyLayer::new())
        .layer(BufferLayer::new(4));
    let reset = Server::start(Act::WriteAndReset(Vec::new())).await.uri();
    let service = buffered.service(server::client());
    let error = service.oneshot(get(&reset)).await.map(drop).unwrap_err();
    assert_eq!((error.kind(), error.sent()), (Kind::Reset, Sent::Unknown));
    // The buffer wraps the error of its worker.
    let error = buffered.service(Broken).oneshot(get("/")).await;
    let error = error.map(drop).unwrap_err();
    assert_eq!((error.kind(), error.sent()), (Kind::Connect, Sent::Never));
    let cause = tower_tds_outcome::chain(&error).nth(2).unwrap();
    assert!(
        cause.is::<tower::buffer::error::ServiceError>(),
        "{error:?}"
    );
}

#[tokio::test]
async fn connector_failure_is_classified_by_types_in_its_chain() {
    for (kind, expected) in [
        (ErrorKind::InvalidData, Kind::Tls),
        (ErrorKind::TimedOut, Kind::Connect),
        (ErrorKind::ConnectionReset, Kind::Connect),
        (ErrorKind::UnexpectedEof, Kind::Connect),
        (ErrorKind::NetworkUnreachable, Kind::Connect),
        (ErrorKind::Other, Kind::Connect),
    ] {
        let connector = tower::service_fn(move |_: http::Uri| {
            let error = io::Error::new(kind, BoxError::from("no"));
            std::future::ready(Err::<TokioIo<TcpStream>, _>(error))
        });
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let service = ClassifyLayer::new().layer(client);
        let error = service
            .oneshot(get("http://127.0.0.1:1/"))
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.sent()),
            (expected, Sent::Never),
            "{kind:?}"
        );
    }
}

/// The error of a response's body, once its head was a success.
async fn body_fails(act: Act) -> Kind {
    let server = Server::start(act).await;
    let service = ClassifyLayer::new().layer(server::client());
    let response = service.oneshot(get(&server.uri())).await.unwrap();
    Error::from(BoxError::from(response.collect().await.unwrap_err())).kind()
}

#[tokio::test]
async fn closed_or_reset_body_is_truncated() {
    for part in [
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\npart\r\n9\r\npa",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\npart\r\n",
    ] {
        let closed = body_fails(Act::WriteAndClose(part.into())).await;
        let reset = body_fails(Act::WriteAndReset(part.into())).await;
        assert_eq!(
            (closed, reset),
            (Kind::Truncated, Kind::Truncated),
            "{part}"
        );
    }
}

#[tokio::test]
async fn corrupt_coding_is_malformed_and_incomplete_coding_is_truncated() {
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\x4a\x2c\x02\0\xc2\x41\x24\x35\x03\0\0\0";
    let br = crate::BROTLI;
    let broken = |whole: &[u8], at: usize| {
        let mut broken = whole.to_vec();
        for byte in &mut broken[at..] {
            *byte ^= 0xff;
        }
        broken
    };
    for (coding, body, expected) in [
        ("gzip", gzip[..15].to_vec(), Kind::Truncated),
        ("br", br[..20].to_vec(), Kind::Truncated),
        ("gzip", broken(gzip, 0), Kind::Malformed),
        ("gzip", broken(gzip, 10), Kind::Malformed),
        ("gzip", broken(gzip, 15), Kind::Malformed),
        ("br", broken(br, 0), Kind::Malformed),
    ] {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\ncontent-length: {length}\r\n\r\n"
        );
        let server = Server::start(Act::Write([head.into_bytes(), body].concat())).await;
        let stack = ServiceBuilder::new()
            .layer(ClassifyLayer::new())
            .layer(DecompressionLayer::new())
            .service(server::client());
        let response = stack.oneshot(get(&server.uri())).await.unwrap();
        let error = Error::from(response.collect().await.map(drop).unwrap_err());
        assert_eq!(error.kind(), expected, "{coding}");
    }
}

#[tokio::test(start_paused = true)]
async fn timeout_at_a_silent_server_may_have_been_sent() {
    let server = Server::start(Act::WriteAndHold(Vec::new())).await;
    let stack = ServiceBuilder::new()
        .layer(ClassifyLayer::new())
        .layer(TimeoutLayer::new(Duration::from_secs(5)))
        .service(server::client());
    let error = stack.oneshot(get(&server.uri())).await.unwrap_err();
    assert_eq!((error.kind(), error.sent()), (Kind::Timeout, Sent::Unknown));
    assert!(error.is_timeout());
}

#[tokio::test]
async fn proxy_407_is_rejected_and_other_proxy_failures_are_connect() {
    let answers = async |text: &str| {
        let act = Act::WriteAndClose(text.as_bytes().to_vec());
        Server::start(act).await.uri()
    };
    let refuses = answers("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
    // A proxy whose own connect has failed, and one that is being started, respond like this.
    let fails = answers("HTTP/1.1 503 Service Unavailable\r\n\r\n").await;
    let closes = answers("").await;
    let nobody = server::NOBODY.to_owned();
    for (proxy, expected) in [
        (refuses, Kind::Rejected),
        (fails, Kind::Connect),
        (closes, Kind::Connect),
        (nobody, Kind::Connect),
    ] {
        let tunnel = Tunnel::new(proxy.parse().unwrap(), HttpConnector::new());
        let client = Client::builder(TokioExecutor::new()).build(tunnel);
        let service = ClassifyLayer::new().layer(client);
        let error = service
            .oneshot(get("http://api.example/"))
            .await
            .unwrap_err();
        assert_eq!((error.kind(), error.sent()), (expected, Sent::Never));
        let next = "check user and password of the proxy";
        assert_eq!(error.to_string().contains(next), expected == Kind::Rejected);
    }
}

fn trusting(roots: RootCertStore) -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// The error that a client with these roots gets from the server at `address`.
async fn tls_fails(address: std::net::SocketAddr, roots: RootCertStore) -> Error {
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(trusting(roots))
        .https_only()
        .enable_http1()
        .build();
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let service = ClassifyLayer::new().layer(client);
    let request = get(&format!("https://{address}/"));
    service.oneshot(request).await.unwrap_err()
}

/// The TLS configuration of a server that requires a client's certificate or not, and its CA.
fn certified(of_clients: bool) -> (TlsAcceptor, RootCertStore) {
    let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let certificate = CertificateDer::from(key.cert);
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let key = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let provider = Arc::new(ring::default_provider());
    let trusted = Arc::new(roots.clone());
    let verifier = WebPkiClientVerifier::builder_with_provider(trusted, Arc::clone(&provider));
    let verifier = match of_clients {
        true => verifier.build().unwrap(),
        false => WebPkiClientVerifier::no_client_auth(),
    };
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate], key.into())
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), roots)
}

#[tokio::test]
async fn tls_closed_without_close_notify_is_a_reset() {
    let (acceptor, roots) = certified(false);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await.unwrap();
        let mut request = [0; 16];
        AsyncReadExt::read_exact(&mut stream, &mut request)
            .await
            .unwrap();
        // Like a process that dies: TCP ends without a close_notify of TLS.
        let (mut stream, _) = stream.into_inner();
        tokio::io::AsyncWriteExt::shutdown(&mut stream).await.ok();
        tokio::io::copy(&mut stream, &mut tokio::io::sink())
            .await
            .ok();
    });
    let error = tls_fails(address, roots).await;
    assert_eq!((error.kind(), error.sent()), (Kind::Reset, Sent::Unknown));
}

/// In TLS 1.3 the server refuses it after the client's handshake.
#[tokio::test]
async fn missing_certificate_of_a_client_is_fatal() {
    let (acceptor, roots) = certified(true);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let refused = acceptor.accept(stream).into_fallible().await;
        let (_, mut stream) = refused.unwrap_err();
        // Reads the request, so that no reset overtakes the alert.
        let mut nowhere = tokio::io::sink();
        tokio::io::copy(&mut stream, &mut nowhere).await.ok();
    });
    let error = tls_fails(address, roots).await;
    assert_eq!(error.kind(), Kind::Tls, "{error:?}");
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn failed_tls_handshake_is_unsent_and_fatal() {
    let (acceptor, _) = certified(false);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let untrusted = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        acceptor.accept(stream).await.ok();
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let junk = b"HTTP/1.1 400 Bad Request\r\n\r\n";
        tokio::io::AsyncWriteExt::write_all(&mut stream, junk)
            .await
            .ok();
    });
    for address in [untrusted, plain] {
        let error = tls_fails(address, RootCertStore::empty()).await;
        assert_eq!((error.kind(), error.sent()), (Kind::Tls, Sent::Never));
        once(&error);
        assert!(!error.is_retryable());
    }
}
