//! A server of given bytes, over TCP, TLS or pipes, by a script. It ends with its runtime.

use std::{
    future::pending,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::{
    io::{
        AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream,
        copy_bidirectional,
    },
    net::{TcpListener, TcpStream},
    time::sleep,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tower_tds::{Builder, Client};

use crate::{
    client::world::{self, AUTH, DATA, pipe},
    connections::net::Pipe,
};

/// A step of the server after a request. Without an end, it reads the next one.
#[derive(Clone)]
pub(crate) enum Act {
    /// Writes, once the body of the request has come.
    Say(Vec<u8>),
    /// Writes, and reads no body.
    Early(Vec<u8>),
    /// Writes the same without an end.
    Repeat(&'static [u8], Duration),
    Wait(Duration),
    /// Accepts a CONNECT with this head, and passes on to where it leads.
    Tunnel(&'static str),
    Close,
    /// Ends the connection, without a `close_notify` under TLS.
    Cut,
    Reset,
    /// Neither answers nor closes.
    Hang,
}

/// A data request. Numbers begin at one.
pub(crate) struct Asked<'a> {
    pub(crate) head: &'a str,
    /// Among the connections that had a data request, and among the requests of its connection.
    pub(crate) connection: usize,
    pub(crate) number: usize,
    /// Among all data requests.
    pub(crate) call: usize,
}

type Script = dyn Fn(&Asked<'_>) -> Vec<Act> + Send + Sync;

#[derive(Clone)]
pub(crate) struct Raw {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

struct Shared {
    script: Box<Script>,
    token: Option<&'static str>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The head of each request with its body, and its token: none for a token request.
    log: Vec<(String, Option<String>)>,
    connects: usize,
    open: usize,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    fn reset(&self) {}
}

impl Stream for DuplexStream {}

impl Stream for TlsStream<TcpStream> {}

impl Stream for TcpStream {
    fn reset(&self) {
        self.set_zero_linger().expect("an open socket");
    }
}

pub(crate) fn say(bytes: impl Into<Vec<u8>>) -> Act {
    Act::Say(bytes.into())
}

/// A whole response with these lines in its head.
pub(crate) fn answer(head: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let (body, head) = (body.as_ref(), head.trim_end());
    let head = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

// === impl Raw ===

impl Raw {
    /// Answers token requests with `t1`, `t2` and so on, and all others by a script.
    pub(crate) fn of(script: impl Fn(&Asked<'_>) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::issuing(None, script)
    }

    /// The same with one token.
    pub(crate) fn issuing(
        token: Option<&'static str>,
        script: impl Fn(&Asked<'_>) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let shared = Shared {
            script: Box::new(script),
            token,
            state: Mutex::default(),
        };
        Self {
            url: DATA.to_owned(),
            shared: Arc::new(shared),
        }
    }

    pub(crate) async fn start(
        script: impl Fn(&Asked<'_>) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        Self::of(script).listen("127.0.0.1").await
    }

    /// Sends the same to all, and closes the connection after `/close`.
    pub(crate) async fn saying(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::start(move |asked| match asked.head.starts_with("GET /close") {
            true => vec![say(&*bytes), Act::Close],
            false => vec![say(&*bytes)],
        })
        .await
    }

    pub(crate) async fn listen(mut self, address: &str) -> Self {
        self.url = format!("http://{}", self.accept(address, None).await);
        self
    }

    /// Listens under TLS. Also returns its certificate.
    pub(crate) async fn listen_tls(mut self, is_ca: bool) -> (Self, String) {
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
        let address = self.accept("127.0.0.1", Some(acceptor)).await;
        self.url = format!("https://localhost:{}", address.port());
        (self, certificate.pem())
    }

    async fn accept(&self, address: &str, tls: Option<TlsAcceptor>) -> SocketAddr {
        let listener = TcpListener::bind((address, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let stream: Box<dyn Stream> = match &tls {
                    None => Box::new(stream),
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => Box::new(stream),
                        Err(_) => continue,
                    },
                };
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        address
    }

    /// Opens a connection to it.
    pub(crate) fn pipe(&self) -> Pipe {
        let (pipe, there) = pipe();
        tokio::spawn(serve(Box::new(there), Arc::clone(&self.shared)));
        pipe
    }

    pub(crate) fn port(&self) -> &str {
        self.url.rsplit(':').next().expect("a port")
    }

    /// A client for tokens and data from here.
    pub(crate) fn builder(&self) -> Builder {
        self.builder_of(&self.url)
    }

    /// A client for tokens from here, and data from there.
    pub(crate) fn builder_of(&self, data: &str) -> Builder {
        let auth = if self.url == DATA { AUTH } else { &self.url };
        Client::builder(auth, data, world::secret())
    }

    pub(crate) fn client(&self) -> Client {
        self.builder().build().expect("loopback is let through")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    /// The tokens of data requests in order, and `POST` for each token request.
    pub(crate) fn seen(&self) -> Vec<String> {
        let post = || "POST".to_owned();
        let log = self.state().log.clone().into_iter();
        log.map(|(_, token)| token.unwrap_or_else(post)).collect()
    }

    /// The heads of data requests, each with its body if that has come.
    pub(crate) fn calls(&self) -> Vec<String> {
        let log = self.state().log.clone().into_iter();
        log.filter_map(|(text, token)| token.and(Some(text)))
            .collect()
    }

    /// The heads of all requests, and their bodies.
    pub(crate) fn all(&self) -> Vec<String> {
        let log = self.state().log.clone().into_iter();
        log.map(|(text, _)| text).collect()
    }

    /// Connections that had a data request, so far and now.
    pub(crate) fn connects(&self) -> usize {
        self.state().connects
    }

    pub(crate) fn open(&self) -> usize {
        self.state().open
    }
}

// === impl Shared ===

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under it")
    }

    /// Notes a request, and returns its place in the log and what happens to it.
    fn ask(&self, head: &str, connection: &mut usize, number: &mut usize) -> (usize, Vec<Act>) {
        let target = head.split([' ', '?']).nth(1).unwrap_or_default();
        let mut state = self.state();
        let is_token = head.starts_with("POST") && target.ends_with("/token");
        let token = head.split_once("Bearer ").map_or("", |(_, rest)| rest);
        let token = token.lines().next().unwrap_or_default();
        let token = (!is_token).then(|| token.to_owned());
        state.log.push((head.to_owned(), token));
        let count = state
            .log
            .iter()
            .filter(|(_, token)| token.is_none() == is_token);
        let (at, call) = (state.log.len() - 1, count.count());
        if is_token {
            let token = self.token.map_or_else(|| format!("t{call}"), str::to_owned);
            let token =
                format!(r#"{{"access_token":"{token}","expires_in":86400,"token_type":"Bearer"}}"#);
            return (at, vec![say(answer("200 OK", token))]);
        }
        if *connection == 0 {
            state.connects += 1;
            state.open += 1;
            *connection = state.connects;
        }
        *number += 1;
        let asked = Asked {
            head,
            connection: *connection,
            number: *number,
            call,
        };
        drop(state);
        (at, (self.script)(&asked))
    }
}

async fn serve(stream: Box<dyn Stream>, shared: Arc<Shared>) {
    let mut connection = 0;
    requests(stream, &shared, &mut connection).await;
    if connection > 0 {
        shared.state().open -= 1;
    }
}

/// Serves a connection to its end.
async fn requests(
    mut stream: Box<dyn Stream>,
    shared: &Shared,
    connection: &mut usize,
) -> Option<()> {
    let mut number = 0;
    loop {
        let head = until_blank_line(&mut stream).await?;
        let (at, acts) = shared.ask(&head, connection, &mut number);
        let mut has_body = true;
        for act in acts {
            match act {
                Act::Say(bytes) => {
                    if std::mem::take(&mut has_body) {
                        let body = body(&mut stream, &head).await?;
                        shared.state().log[at].0.push_str(&body);
                    }
                    stream.write_all(&bytes).await.ok()?;
                }
                Act::Early(bytes) => stream.write_all(&bytes).await.ok()?,
                Act::Repeat(bytes, pause) => loop {
                    stream.write_all(bytes).await.ok()?;
                    if !pause.is_zero() {
                        sleep(pause).await;
                    }
                },
                Act::Wait(time) => sleep(time).await,
                Act::Tunnel(accepts) => {
                    let target = head.split(' ').nth(1).expect("a target");
                    let mut there = TcpStream::connect(target).await.expect("it listens");
                    let accepts = format!("HTTP/{accepts}\r\n\r\n");
                    stream.write_all(accepts.as_bytes()).await.ok()?;
                    copy_bidirectional(&mut stream, &mut there).await.ok()?;
                }
                Act::Close => return stream.shutdown().await.ok(),
                Act::Cut => return stream.flush().await.ok(),
                Act::Reset => {
                    stream.reset();
                    return None;
                }
                Act::Hang => pending().await,
            }
        }
        stream.flush().await.ok()?;
    }
}

async fn until_blank_line(stream: &mut Box<dyn Stream>) -> Option<String> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The body that a head announces. Chunks end as a head does.
async fn body(stream: &mut Box<dyn Stream>, head: &str) -> Option<String> {
    if !values(head, "transfer-encoding").is_empty() {
        return until_blank_line(stream).await;
    }
    let length = values(head, "content-length").pop().unwrap_or("0");
    let mut body = vec![0; length.parse().expect("a length")];
    stream.read_exact(&mut body).await.ok()?;
    Some(String::from_utf8_lossy(&body).into_owned())
}

/// The values of a header in the head of a request.
pub(crate) fn values<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let named = lines.filter(|(of, _)| of.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value).collect()
}
