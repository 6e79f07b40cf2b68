//! A server on raw sockets, with a ledger: when it counted each request, and how long it counted
//! each socket.

use std::{
    future::pending,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use fastrand::Rng;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    select, spawn,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::mix::{Counts, Mix};
use crate::audit::Span;

pub(crate) struct Server {
    mix: Mix,
    ledger: Mutex<Ledger>,
}

/// The record of one server.
#[derive(Default)]
pub(crate) struct Ledger {
    counted: Vec<Instant>,
    sockets: Vec<(Instant, Option<Instant>)>,
    /// Whether requests are answered without faults.
    is_calm: bool,
}

/// Whether a request is for a token, the end of its service, and its count.
type Request = (bool, Instant, JoinHandle<()>);

/// The fate of a request and its socket.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Answer,
    SlowBody,
    EarlyHints,
    Hang,
    Reset,
    CloseAfter,
    CloseFirst,
}

// === impl Server ===

impl Server {
    pub(crate) async fn start(mix: &Mix) -> (Arc<Self>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = Arc::new(Self {
            mix: mix.clone(),
            ledger: Mutex::default(),
        });
        let serving = Arc::clone(&server);
        spawn(async move {
            let mut rng = Rng::with_seed(serving.mix.seed);
            while let Ok((stream, _)) = listener.accept().await {
                let nth = serving.ledger(|ledger| {
                    ledger.sockets.push((Instant::now(), None));
                    ledger.sockets.len() - 1
                });
                spawn(serve(stream, nth, Arc::clone(&serving), rng.fork()));
            }
        });
        (server, address)
    }

    pub(crate) fn calm(&self) {
        self.ledger(|ledger| ledger.is_calm = true);
    }

    /// When requests were counted, in order.
    pub(crate) fn counted(&self, since: Instant) -> Vec<Duration> {
        let mut counted = self.ledger(|ledger| ledger.counted.clone());
        counted.sort();
        counted.into_iter().map(|at| at - since).collect()
    }

    /// When sockets were open. An end that is missing is now.
    pub(crate) fn sockets(&self, since: Instant) -> Vec<Span> {
        let now = Instant::now();
        let sockets = self.ledger(|ledger| ledger.sockets.clone());
        let span = |(from, until): (Instant, Option<Instant>)| {
            (from - since, until.unwrap_or(now) - since)
        };
        sockets.into_iter().map(span).collect()
    }

    fn ledger<R>(&self, of: impl FnOnce(&mut Ledger) -> R) -> R {
        of(&mut self.ledger.lock().expect("no holder panics"))
    }

    fn count(&self) {
        self.ledger(|ledger| ledger.counted.push(Instant::now()));
    }

    /// Records the end of a socket. It comes before anything that the client can notice.
    fn end(&self, nth: usize) {
        self.ledger(|ledger| ledger.sockets[nth].1 = Some(Instant::now()));
    }

    fn fate(&self, is_for_token: bool, rng: &mut Rng) -> Fate {
        if is_for_token || self.ledger(|ledger| ledger.is_calm) {
            return Fate::Answer;
        }
        match rng.u8(..100) {
            0..70 => Fate::Answer,
            70..76 => Fate::SlowBody,
            76..82 => Fate::EarlyHints,
            82..84 => Fate::Hang,
            84..90 => Fate::Reset,
            90..92 => Fate::CloseAfter,
            _ => Fate::CloseFirst,
        }
    }
}

/// Serves one socket until either side ends it.
async fn serve(mut stream: TcpStream, nth: usize, server: Arc<Server>, mut rng: Rng) {
    let (requests, queue) = unbounded_channel();
    let (from, to) = stream.split();
    let reader_rng = rng.fork();
    let is_reset = select! {
        () = read(from, requests, &server, reader_rng) => false,
        fate = answer(to, queue, &server, &mut rng) => fate == Fate::Reset,
    };
    server.end(nth);
    if is_reset {
        stream.set_zero_linger().ok();
    }
}

/// Reads requests until the client's end or reset. Counts each, even if its caller leaves.
async fn read(
    mut from: ReadHalf<'_>,
    requests: UnboundedSender<Request>,
    server: &Arc<Server>,
    mut rng: Rng,
) {
    let mut bytes = Vec::new();
    loop {
        while let Some(head) = take_request(&mut bytes) {
            let begins = Instant::now() + Duration::from_millis(rng.u64(..60));
            let ends = begins + Duration::from_millis(rng.u64(..120));
            let at = match server.mix.counts {
                Counts::Arrival => None,
                Counts::Begin => Some(begins),
                Counts::End => Some(ends),
            };
            if at.is_none() {
                server.count();
            }
            let counting = Arc::clone(server);
            let counted = spawn(async move {
                if let Some(at) = at {
                    sleep_until(at).await;
                    counting.count();
                }
            });
            let is_for_token = head.starts_with(b"POST ");
            requests.send((is_for_token, ends, counted)).ok();
        }
        let read = timeout(SILENT, from.read_buf(&mut bytes)).await;
        if !matches!(read, Ok(Ok(1..))) {
            break;
        }
    }
}

/// Takes the first whole request from `bytes`.
fn take_request(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let head = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let length = text.split_once("content-length:").map_or(0, |(_, rest)| {
        let line = rest.lines().next().expect("a line");
        line.trim().parse().expect("a length")
    });
    (bytes.len() >= head + length).then(|| bytes.drain(..head + length).collect())
}

/// Answers requests until this side ends the socket. Returns how.
async fn answer(
    mut to: WriteHalf<'_>,
    mut queue: UnboundedReceiver<Request>,
    server: &Server,
    rng: &mut Rng,
) -> Fate {
    while let Some((is_for_token, ends, counted)) = queue.recv().await {
        sleep_until(ends).await;
        counted.await.expect("a count does not panic");
        let fate = server.fate(is_for_token, rng);
        if write(&mut to, is_for_token, fate, rng).await.is_err() {
            // The reader sees the end as well.
            break;
        }
        match fate {
            Fate::Answer | Fate::SlowBody | Fate::EarlyHints => {}
            Fate::Reset | Fate::CloseAfter => return fate,
            // The socket counts until the client has ended it, too (RFC 9112, section 9.6).
            Fate::Hang | Fate::CloseFirst => break,
        }
    }
    pending().await
}

async fn write(
    to: &mut WriteHalf<'_>,
    is_token: bool,
    fate: Fate,
    rng: &mut Rng,
) -> io::Result<()> {
    let body = if is_token {
        let token = TOKEN.replace("TOKEN", &format!("t{}", rng.u32(..)));
        token.into_bytes()
    } else {
        vec![b'.'; rng.usize(1..20_000)]
    };
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
    let whole = [head.as_bytes(), &body].concat();
    let (head, half) = (head.len(), head.len() + length / 2);
    match fate {
        Fate::Hang => return Ok(()),
        Fate::Reset => {
            let before = [0, head / 2, head, half][rng.usize(..4)];
            return to.write_all(&whole[..before]).await;
        }
        Fate::EarlyHints => {
            to.write_all(HINTS).await?;
            sleep(Duration::from_millis(rng.u64(..100))).await;
        }
        Fate::Answer | Fate::SlowBody | Fate::CloseAfter | Fate::CloseFirst => {}
    }
    to.write_all(&whole[..half]).await?;
    if fate == Fate::SlowBody {
        sleep(Duration::from_millis(rng.u64(..1_500))).await;
    }
    to.write_all(&whole[half..]).await?;
    if fate == Fate::CloseFirst {
        to.shutdown().await?;
    }
    Ok(())
}

const HINTS: &[u8] = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";

/// It lives for a few seconds, so that renewals are a part of the mix.
const TOKEN: &str = r#"{"access_token":"TOKEN","expires_in":9,"token_type":"Bearer"}"#;

/// A server forgets a socket on which nothing comes, within the time that the limits assume for
/// sockets whose end was lost.
const SILENT: Duration = Duration::from_secs(25);
