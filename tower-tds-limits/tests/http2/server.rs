//! A TLS server that speaks HTTP/2 and counts its sockets.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::CertifiedKey;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_rustls::TlsAcceptor;

pub(crate) const BODY: &str = "bus 307";

pub(crate) struct Server {
    uri: Uri,
    certificate: CertificateDer<'static>,
    counts: Arc<Counts>,
}

struct Counts {
    requests: AtomicU32,
    peak_sockets: AtomicU32,
    /// Opened, and closed.
    sockets: watch::Sender<(u32, u32)>,
    /// How many requests are there, and how many have to be before one is answered.
    barrier: watch::Sender<(u32, u32)>,
}

/// A socket that is forgotten no later than it says goodbye, as at gateways.
struct Counted {
    socket: TcpStream,
    counts: Option<Arc<Counts>>,
}

// === impl Server ===

impl Server {
    pub(crate) async fn start() -> Self {
        let (tls, certificate) = Self::tls();
        Self::listen("https", Some(tls), certificate).await
    }

    /// By prior knowledge, without TLS.
    pub(crate) async fn start_plain() -> Self {
        let (_tls, certificate) = Self::tls();
        Self::listen("http", None, certificate).await
    }

    fn tls() -> (TlsAcceptor, CertificateDer<'static>) {
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed([String::from("localhost")]).expect("a certificate");
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let mut tls = ServerConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .expect("ring knows them")
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .expect("they belong together");
        tls.alpn_protocols = vec![b"h2".to_vec()];
        (TlsAcceptor::from(Arc::new(tls)), cert.der().clone())
    }

    async fn listen(
        scheme: &str,
        tls: Option<TlsAcceptor>,
        certificate: CertificateDer<'static>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let counts = Arc::new(Counts {
            requests: AtomicU32::new(0),
            peak_sockets: AtomicU32::new(0),
            sockets: watch::Sender::new((0, 0)),
            barrier: watch::Sender::new((0, 0)),
        });
        let server = Self {
            uri: format!("{scheme}://localhost:{port}/")
                .parse()
                .expect("a URI"),
            certificate,
            counts: Arc::clone(&counts),
        };
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("loopback accepts");
                counts.opened();
                let socket = Counted {
                    socket,
                    counts: Some(Arc::clone(&counts)),
                };
                let (tls, counts) = (tls.clone(), Arc::clone(&counts));
                tokio::spawn(async move {
                    match tls {
                        None => serve(socket, counts).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(socket).await {
                                serve(stream, counts).await;
                            }
                        }
                    }
                });
            }
        });
        server
    }

    pub(crate) fn uri(&self) -> Uri {
        self.uri.clone()
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }

    pub(crate) fn requests(&self) -> u32 {
        self.counts.requests.load(SeqCst)
    }

    pub(crate) fn peak_sockets(&self) -> u32 {
        self.counts.peak_sockets.load(SeqCst)
    }

    pub(crate) fn opened_sockets(&self) -> u32 {
        self.counts.sockets.borrow().0
    }

    /// Waits until so many sockets are left.
    pub(crate) async fn closed_all_but(&self, left: u32) {
        let mut sockets = self.counts.sockets.subscribe();
        let seen = sockets.wait_for(|(opened, closed)| opened - closed == left);
        drop(seen.await.expect("the counts live as long as the server"));
    }

    /// From now on answers when so many requests are there.
    pub(crate) fn answer_together(&self, requests: u32) {
        self.counts.barrier.send_replace((0, requests));
    }
}

// === impl Counts ===

impl Counts {
    fn opened(&self) {
        self.sockets.send_modify(|(opened, closed)| {
            *opened += 1;
            self.peak_sockets.fetch_max(*opened - *closed, SeqCst);
        });
    }

    async fn answer(&self) -> Response<Full<Bytes>> {
        self.requests.fetch_add(1, SeqCst);
        self.barrier.send_modify(|(arrived, _)| *arrived += 1);
        let mut barrier = self.barrier.subscribe();
        let together = barrier
            .wait_for(|(arrived, together)| arrived >= together)
            .await;
        drop(together.expect("the counts live as long as the server"));
        Response::new(Full::from(BODY))
    }
}

async fn serve<S>(socket: S, counts: Arc<Counts>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let answer = service_fn(move |_: Request<Incoming>| {
        let counts = Arc::clone(&counts);
        async move { Ok::<_, Infallible>(counts.answer().await) }
    });
    // However it ends, the socket has ended.
    let _ended: hyper::Result<()> = http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(socket), answer)
        .await;
}

// === impl Counted ===

impl Counted {
    fn end(&mut self) {
        if let Some(counts) = self.counts.take() {
            counts.sockets.send_modify(|(_, closed)| *closed += 1);
        }
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end();
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.end();
    }
}
