//! A server on raw sockets, with a ledger: when it counted each request, and how long it counted
//! each socket.

use std::{
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
        let listener = TcpListener::bind(super::OWN).await.expect("a port");
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
    let (mut from, mut to) = stream.split();
    let (mut bytes, mut is_reset) = (Vec::new(), false);
    while let Some(head) = read(&mut from, &mut bytes).await {
        let is_for_token = head.starts_with(b"POST ");
        let (ends, counted) = count(&server, &mut rng);
        let answered = async {
            sleep_until(ends).await;
            counted.await.expect("a count does not panic");
            let fate = server.fate(is_for_token, &mut rng);
            match write(&mut to, is_for_token, fate, &mut rng).await {
                Ok(()) => fate,
                // The client has ended it, which is read.
                Err(_) => Fate::Hang,
            }
        };
        // Before its answer, a client sends nothing but its end.
        let fate = select! {
            biased;
            fate = answered => fate,
            _ = silence(&mut from, &mut bytes) => break,
        };
        is_reset = fate == Fate::Reset;
        match fate {
            Fate::Answer | Fate::SlowBody | Fate::EarlyHints => continue,
            Fate::Reset | Fate::CloseAfter => {}
            // The socket counts until the client has ended it, too (RFC 9112, section 9.6).
            Fate::Hang | Fate::CloseFirst => silence(&mut from, &mut bytes).await,
        }
        break;
    }
    server.end(nth);
    if is_reset {
        stream.set_zero_linger().ok();
    }
}

/// Counts a request, even if its caller leaves. Returns the end of its service, and its count.
fn count(server: &Arc<Server>, rng: &mut Rng) -> (Instant, JoinHandle<()>) {
    let begins = Instant::now() + Duration::from_millis(rng.u64(..60));
    let ends = begins + Duration::from_millis(rng.u64(..120));
    let at = match server.mix.counts {
        Counts::Arrival => Instant::now(),
        Counts::Begin => begins,
        Counts::End => ends,
    };
    let counting = Arc::clone(server);
    let counted = async move {
        sleep_until(at).await;
        counting.ledger(|ledger| ledger.counted.push(Instant::now()));
    };
    (ends, spawn(counted))
}

/// Reads a request, or returns `None` at the client's end or reset.
async fn read(from: &mut ReadHalf<'_>, bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        if let Some(request) = take_request(bytes) {
            return Some(request);
        }
        let read = timeout(SILENT, from.read_buf(bytes)).await;
        matches!(read, Ok(Ok(1..))).then_some(())?;
    }
}

/// Waits for the client's end or reset.
async fn silence(from: &mut ReadHalf<'_>, bytes: &mut Vec<u8>) {
    while read(from, bytes).await.is_some() {}
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
