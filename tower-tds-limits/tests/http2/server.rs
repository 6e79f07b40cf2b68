//! A TLS server that speaks HTTP/2 and counts its sockets.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{Certificate, CertifiedKey};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpListener,
    sync::watch,
};
use tokio_rustls::TlsAcceptor;

pub(crate) const BODY: &str = "bus 307";

pub(crate) struct Server {
    uri: Uri,
    certificate: Certificate,
    counts: Arc<Counts>,
}

struct Counts {
    refuses: AtomicBool,
    requests: AtomicU32,
    peak_sockets: AtomicU32,
    /// Opened, and closed.
    sockets: watch::Sender<(u32, u32)>,
    /// How many requests are there, and how many have to be before one is answered.
    barrier: watch::Sender<(u32, u32)>,
    held: watch::Sender<bool>,
}

/// A socket that is forgotten no later than it says goodbye, as at gateways.
struct Counted<S> {
    socket: S,
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

    fn tls() -> (TlsAcceptor, Certificate) {
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
        (TlsAcceptor::from(Arc::new(tls)), cert)
    }

    async fn listen(scheme: &str, tls: Option<TlsAcceptor>, certificate: Certificate) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let server = Self::new(&format!("{scheme}://localhost:{port}/"), certificate);
        let counts = Arc::clone(&server.counts);
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("loopback accepts");
                let socket = counts.opened(socket);
                let (tls, counts) = (tls.clone(), Arc::clone(&counts));
                tokio::spawn(async move {
                    match tls {
                        None => serve(socket, counts).await,
                        Some(_) if counts.refuses.load(SeqCst) => refuse(socket).await,
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

    fn new(uri: &str, certificate: Certificate) -> Self {
        Self {
            uri: uri.parse().expect("a URI"),
            certificate,
            counts: Arc::new(Counts {
                refuses: AtomicBool::new(false),
                requests: AtomicU32::new(0),
                peak_sockets: AtomicU32::new(0),
                sockets: watch::Sender::new((0, 0)),
                barrier: watch::Sender::new((0, 0)),
                held: watch::Sender::new(true),
            }),
        }
    }

    /// Where the head is answered at once, and the body when it is released.
    pub(crate) fn held(&self) -> Uri {
        format!("{}held", self.uri).parse().expect("a URI")
    }

    /// From now on refuses handshakes, and closes a tenth of a second later, or takes them again.
    pub(crate) fn refuse_handshakes(&self, refuses: bool) {
        self.counts.refuses.store(refuses, SeqCst);
    }

    /// Sends what is held back.
    pub(crate) fn release(&self) {
        self.counts.held.send_replace(false);
    }

    pub(crate) fn uri(&self) -> Uri {
        self.uri.clone()
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
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

    /// Waits until so many requests are there, since it answers together.
    pub(crate) async fn seen_requests(&self, requests: u32) {
        let mut barrier = self.counts.barrier.subscribe();
        let seen = barrier.wait_for(|(arrived, _)| *arrived >= requests);
        drop(seen.await.expect("the counts live as long as the server"));
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
    fn opened<S>(self: &Arc<Self>, socket: S) -> Counted<S> {
        self.sockets.send_modify(|(opened, closed)| {
            *opened += 1;
            self.peak_sockets.fetch_max(*opened - *closed, SeqCst);
        });
        Counted {
            socket,
            counts: Some(Arc::clone(self)),
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<BoxBody<Bytes, Infallible>> {
        self.requests.fetch_add(1, SeqCst);
        self.barrier.send_modify(|(arrived, _)| *arrived += 1);
        let mut barrier = self.barrier.subscribe();
        let together = barrier
            .wait_for(|(arrived, together)| arrived >= together)
            .await;
        drop(together.expect("the counts live as long as the server"));
        Response::new(if request.uri().path() == "/held" {
            BoxBody::new(Held::new(self.held.subscribe()))
        } else {
            Full::from(BODY).boxed()
        })
    }
}

async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(mut socket: S) {
    socket.read_u8().await.expect("a handshake");
    // RFC 8446, section 6: a record with an alert, fatal, handshake_failure.
    let alert = socket.write_all(&[21, 3, 3, 0, 2, 2, 40]).await;
    alert.expect("an open socket");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

async fn serve<S>(socket: S, counts: Arc<Counts>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let answer = service_fn(move |request| {
        let counts = Arc::clone(&counts);
        async move { Ok::<_, Infallible>(counts.answer(request).await) }
    });
    // However it ends, the socket has ended.
    let _ended: hyper::Result<()> = http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(socket), answer)
        .await;
}

// === impl Counted ===

impl<S> Counted<S> {
    fn end(&mut self) {
        if let Some(counts) = self.counts.take() {
            counts.sockets.send_modify(|(_, closed)| *closed += 1);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
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

impl<S> Drop for Counted<S> {
    fn drop(&mut self) {
        self.end();
    }
}

/// A body that is held back.
struct Held {
    released: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    over: bool,
}

// === impl Held ===

impl Held {
    fn new(mut held: watch::Receiver<bool>) -> Self {
        Self {
            released: Box::pin(async move {
                let released = held.wait_for(|held| !held).await;
                drop(released.expect("the counts live as long as the server"));
            }),
            over: false,
        }
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.over {
            return Poll::Ready(None);
        }
        ready!(self.released.as_mut().poll(cx));
        self.over = true;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(BODY.as_bytes())))))
    }
}
