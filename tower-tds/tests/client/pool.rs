//! The pool of connections, as a server at the other end of its pipes sees it, under paused time.

use std::{
    future::{IntoFuture, pending, ready},
    io,
    num::NonZeroU32,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use futures_util::{StreamExt as _, stream};
use http::{Method, Request, Uri};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper_util::{client::legacy::connect::Connected, rt::TokioIo};
use tokio::{
    io::{AsyncWriteExt as _, DuplexStream, duplex},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower::service_fn as connector;
use tower_tds::{
    Builder, Client, Credentials, Error, Kind, Limits, Quota, RequestBody, layers::limits::Rules,
};

use crate::client::{
    server::{Server, read},
    stalls::Pipe,
};

/// A data server behind pipes.
#[derive(Clone, Default)]
struct Pipes {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    connects: AtomicUsize,
    open: AtomicUsize,
    /// Connects that have begun and not ended.
    connecting: AtomicUsize,
    calls: AtomicUsize,
    /// Connections up to this number get no answer, and their ends are not seen.
    silent: AtomicUsize,
}

/// Time to the response head of the call with this number.
type Delay = fn(usize) -> Duration;

/// Counts one for as long as it is kept.
struct Counted(Arc<Shared>, fn(&Shared) -> &AtomicUsize);

// === impl Pipes ===

impl Pipes {
    fn builder(&self, delay: Delay, connect: Duration) -> Builder {
        let shared = Arc::clone(&self.shared);
        let pipes = connector(move |target: Uri| {
            let shared = Arc::clone(&shared);
            async move {
                let is_data = target.host() == Some("data.example.org");
                if is_data {
                    let _connecting = Counted::new(&shared, |shared| &shared.connecting);
                    sleep(connect).await;
                }
                let (here, there) = duplex(64 * 1024);
                tokio::spawn(serve(there, shared, is_data, delay));
                Ok::<_, io::Error>(Pipe(TokioIo::new(here), Connected::new))
            }
        });
        let wide = Quota::new(NonZeroU32::new(2_000).expect("many"), SECOND);
        let limits = Limits::new(wide.expect("a second")).rules(Rules::window());
        let (auth, data) = ("https://auth.example.org", "https://data.example.org");
        let credentials = Credentials::new("id", "s3cr3t").expect("usable");
        let builder = Client::builder(auth, data, credentials);
        builder.limits(limits).connector(pipes)
    }

    async fn client(&self, delay: Delay) -> Client {
        let client = self.builder(delay, Duration::ZERO).build();
        let client = client.expect("a connector");
        client.tokens().ready().await.expect("a token");
        client
    }

    fn connects(&self) -> usize {
        self.shared.connects.load(SeqCst)
    }

    fn open(&self) -> usize {
        self.shared.open.load(SeqCst)
    }

    /// Cuts all connections off, and returns their number.
    fn fall_silent(&self) -> usize {
        let all = self.connects();
        self.shared.silent.store(all, SeqCst);
        all
    }
}

// === impl Counted ===

impl Counted {
    fn new(shared: &Arc<Shared>, of: fn(&Shared) -> &AtomicUsize) -> Self {
        of(shared).fetch_add(1, SeqCst);
        Self(Arc::clone(shared), of)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.1)(&self.0).fetch_sub(1, SeqCst);
    }
}

async fn serve(mut stream: DuplexStream, shared: Arc<Shared>, is_data: bool, delay: Delay) {
    if !is_data {
        read(&mut stream).await.expect("a token request");
        let token = r#"{"access_token":"t","expires_in":86400,"token_type":"Bearer"}"#;
        let head = "HTTP/1.1 200 OK\r\ncontent-length:";
        let reply = format!("{head} {}\r\n\r\n{token}", token.len());
        return stream
            .write_all(reply.as_bytes())
            .await
            .expect("it is read");
    }
    let number = shared.connects.fetch_add(1, SeqCst) + 1;
    let _open = Counted::new(&shared, |shared| &shared.open);
    while read(&mut stream).await.is_some() {
        let call = shared.calls.fetch_add(1, SeqCst) + 1;
        if number <= shared.silent.load(SeqCst) {
            return pending().await;
        }
        sleep(delay(call)).await;
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        if stream.write_all(answer).await.is_err() {
            return;
        }
    }
    if number <= shared.silent.load(SeqCst) {
        pending().await
    }
}

/// Makes calls at once. Returns how long each took.
async fn calls(client: &Client, number: usize, deadline: Duration) -> Vec<Result<Duration, Error>> {
    let mut calls = JoinSet::new();
    for _ in 0..number {
        let call = client.get("/v1/live/bus").deadline(deadline).into_future();
        calls.spawn(async move {
            let begins = Instant::now();
            call.await?.bytes().await?;
            Ok(begins.elapsed())
        });
    }
    calls.join_all().await
}

const SECOND: Duration = Duration::from_secs(1);

const LONG: Duration = Duration::from_secs(600);

#[tokio::test(start_paused = true)]
async fn silent_connections_cost_only_the_calls_that_met_them_first() {
    for usual in [|_: usize| Duration::from_millis(1), |_: usize| SECOND / 10] {
        for deadline in [3, 10, 40].map(|seconds| SECOND * seconds) {
            let net = Pipes::default();
            let client = net.client(usual).await;
            for answered in calls(&client, 40, LONG).await {
                answered.expect("it is answered");
            }
            assert_eq!(net.connects(), 40);
            sleep(SECOND).await;
            net.fall_silent();
            let mut groups = JoinSet::new();
            for begins in [0, 1, 4, 8] {
                let client = client.clone();
                groups.spawn(async move {
                    sleep(SECOND * begins).await;
                    (begins, calls(&client, 10, deadline).await)
                });
            }
            while let Some(group) = groups.join_next().await {
                let (begins, ended) = group.expect("no panic");
                if begins == 0 {
                    assert!(ended.iter().all(Result::is_err), "they met silent ones");
                    continue;
                }
                for ended in ended {
                    let took = ended.unwrap_or_else(|error| panic!("+{begins} s: {error}"));
                    assert!(took <= SECOND / 5, "+{begins} s: {took:?}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn slow_heads_of_a_healthy_server_cost_at_most_two_connects_in_a_hundred_calls() {
    let heads: [Delay; 5] = [
        |_| SECOND * 3,
        |_| SECOND * 30,
        |call| SECOND * if call % 2 == 0 { 3 } else { 30 },
        |call| Duration::from_millis(if call % 20 < 2 { 3_000 } else { 50 }),
        |call| Duration::from_millis(if call / 20 % 10 == 0 { 30_000 } else { 50 }),
    ];
    for (n, delay) in heads.into_iter().enumerate() {
        let net = Pipes::default();
        let client = net.client(delay).await;
        // The first calls open what the others reuse.
        let lane = |client: Client, number: u32| async move {
            for _ in 0..number {
                let answer = client.get("/v1/live/bus").deadline(LONG).await;
                answer.expect("a head").bytes().await.expect("a body");
                sleep(SECOND / 100).await;
            }
        };
        let mut lanes = JoinSet::new();
        (0..10).for_each(|_| drop(lanes.spawn(lane(client.clone(), 10))));
        lanes.join_all().await;
        let before = net.connects();
        let mut lanes = JoinSet::new();
        (0..10).for_each(|_| drop(lanes.spawn(lane(client.clone(), 100))));
        lanes.join_all().await;
        let more = net.connects() - before;
        assert!(more <= 20, "case {n}: {more} connects in 1,000 calls");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_connections_close_with_the_last_client_and_after_a_shutdown() {
    for shuts_down in [false, true] {
        let net = Pipes::default();
        let client = net.client(|_| SECOND / 10).await;
        let other = client.clone();
        for answered in calls(&client, 40, LONG).await {
            answered.expect("it is answered");
        }
        drop(client);
        sleep(SECOND / 5).await;
        assert_eq!(net.open(), 40, "a clone is left");
        let body = other.get("/v1/live/bus").await.expect("a head");
        if shuts_down {
            other.shutdown(Duration::ZERO).await;
        } else {
            drop(other);
        }
        sleep(SECOND / 5).await;
        assert_eq!(net.open(), 1, "its body is unread");
        assert_eq!(body.bytes().await.expect("a body"), "ok");
        sleep(SECOND / 5).await;
        assert_eq!(net.open(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn connects_that_no_call_awaits_end_with_the_last_client() {
    let net = Pipes::default();
    let client = net.builder(|_| SECOND / 10, SECOND * 5).build();
    let client = client.expect("a connector");
    client.tokens().ready().await.expect("a token");
    // The calls give up while their connects go on.
    for ended in calls(&client, 10, SECOND).await {
        let error = ended.expect_err("no connection yet");
        assert_eq!(error.kind(), Kind::Timeout);
    }
    assert_eq!(net.shared.connecting.load(SeqCst), 10, "for later calls");
    drop(client);
    // The limit lets a connect go on for a second.
    sleep(SECOND + SECOND / 5).await;
    assert_eq!(net.shared.connecting.load(SeqCst), 0);
    assert_eq!(net.connects(), 0);
}

#[tokio::test(start_paused = true)]
async fn connect_of_a_call_that_has_gone_serves_the_next_one() {
    let net = Pipes::default();
    let client = net.builder(|_| Duration::ZERO, SECOND * 2).build();
    let client = client.expect("a connector");
    client.tokens().ready().await.expect("a token");
    let [gone] = &calls(&client, 1, SECOND).await[..] else {
        panic!("one call");
    };
    assert!(gone.is_err());
    sleep(SECOND * 2).await;
    let begins = Instant::now();
    calls(&client, 1, LONG).await.remove(0).expect("an answer");
    assert!(begins.elapsed() < SECOND, "it did not connect");
    assert_eq!(net.connects(), 1);
}

#[tokio::test(start_paused = true)]
async fn idle_connection_closes_after_thirty_seconds() {
    let net = Pipes::default();
    let client = net.client(|_| Duration::ZERO).await;
    for (waits, connects) in [(0, 1), (29, 1), (29, 1), (31, 2)] {
        sleep(SECOND * waits).await;
        calls(&client, 1, LONG).await.remove(0).expect("an answer");
        assert_eq!(net.connects(), connects, "after {waits} s");
    }
    sleep(SECOND * 31).await;
    assert_eq!(net.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn connection_that_negotiated_http2_is_refused_by_name() {
    let pipes = connector(async |_: Uri| {
        let negotiated = || Connected::new().negotiated_h2();
        Ok::<_, io::Error>(Pipe(TokioIo::new(duplex(64).0), negotiated))
    });
    let credentials = Credentials::new("id", "s3cr3t").expect("usable");
    let (auth, data) = ("https://auth.example.org", "https://data.example.org");
    let client = Client::builder(auth, data, credentials).connector(pipes);
    let client = client.build().expect("a connector");
    let error = client.get("/").await.expect_err("no HTTP/1.1");
    assert!(!error.is_retryable(), "{error}");
    for part in ["negotiated HTTP/2", "leave h2 out"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

/// A body whose end never comes.
fn endless() -> RequestBody {
    let first = stream::once(async { Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"x"))) });
    RequestBody::stream(StreamBody::new(Box::pin(first.chain(stream::pending()))))
}

#[tokio::test]
async fn uploads_that_are_answered_early_hold_up_no_later_call() {
    let server = Server::start(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let limits = Limits::default().rules(Rules::window());
    let client = server.builder().limits(limits).build();
    let client = client.expect("loopback is let through");
    let mut uploads = JoinSet::new();
    for _ in 0..20 {
        let upload = client.request(Request::put("/").body(endless()).expect("a request"));
        uploads.spawn(upload.into_future());
    }
    for answered in uploads.join_all().await {
        answered.expect("an early answer");
    }
    let later = calls(&client, 10, LONG);
    let later = timeout(SECOND * 10, later).await;
    for answered in later.expect("none hangs") {
        answered.expect("an answer");
    }
}

/// A server that answers with the number in the path, troubles each call in its own way, and notes what it has read.
async fn chaos(mut stream: DuplexStream, seen: Arc<Mutex<Vec<u64>>>, mut rng: Rng) -> Option<()> {
    while let Some(head) = read(&mut stream).await {
        let (_, number) = head.split_once(" /")?;
        let (number, _) = number.split_once(' ')?;
        seen.lock()
            .expect("no panic")
            .push(number.parse().expect("a number"));
        sleep(Duration::from_millis(rng.u64(..40))).await;
        let (half, rest) = number.split_at(number.len() / 2);
        let length = number.len();
        let plain = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n");
        let way = rng.u8(..8);
        let parts = match way {
            0 => return None,
            1 => vec![
                "HTTP/1.1 103 Early Hints\r\n\r\n".to_owned(),
                format!("{plain}\r\n{number}"),
            ],
            2 => vec![
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned(),
                format!(
                    "{:x}\r\n{half}\r\n{:x}\r\n{rest}\r\n0\r\nx: y\r\n\r\n",
                    half.len().max(1),
                    rest.len()
                ),
            ],
            3 => vec![format!("{plain}connection: close\r\n\r\n{number}")],
            // An answer to nothing, together with this one. Behind the next request, no client could tell it.
            4 => vec![format!(
                "{plain}\r\n{number}HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray"
            )],
            5 => vec![format!("{plain}\r\n{half}"), rest.to_owned()],
            6 => vec![format!("{plain}\r\n{half}")],
            _ => vec![format!("{plain}\r\n{number}")],
        };
        for part in parts {
            stream.write_all(part.as_bytes()).await.ok()?;
            sleep(Duration::from_millis(rng.u64(..10))).await;
        }
        if [3, 6].contains(&way) {
            return None;
        }
    }
    None
}

#[tokio::test(start_paused = true)]
async fn each_call_gets_its_own_answer_and_no_post_is_sent_twice() {
    for seed in 0..20 {
        let seen = Arc::<Mutex<Vec<u64>>>::default();
        let (rng, log) = (
            Arc::new(Mutex::new(Rng::with_seed(seed))),
            Arc::clone(&seen),
        );
        let pipes = connector(move |target: Uri| {
            let (here, there) = duplex(64 * 1024);
            let rng = rng.lock().expect("no panic").fork();
            if target.host() == Some("data.example.org") {
                tokio::spawn(chaos(there, Arc::clone(&log), rng));
            } else {
                tokio::spawn(serve(there, Arc::default(), false, |_| Duration::ZERO));
            }
            ready(Ok::<_, io::Error>(Pipe(TokioIo::new(here), Connected::new)))
        });
        let client = Pipes::default()
            .builder(|_| SECOND, SECOND)
            .connector(pipes);
        let client = client.build().expect("a connector");
        let mut rng = Rng::with_seed(seed);
        let mut calls = JoinSet::new();
        for number in 1_000..1_400_u64 {
            let is_post = rng.u8(..4) == 0;
            let method = if is_post { Method::POST } else { Method::GET };
            let request = Request::builder()
                .method(method)
                .uri(format!("/{number}"))
                .body("");
            let call = client.request(request.expect("a request")).into_future();
            let (ends, is_cut) = (Duration::from_millis(rng.u64(..200)), rng.u8(..8) == 0);
            calls.spawn(async move {
                let called = async {
                    let mut answer = call.await.ok()?;
                    // Some read only the beginning of the body.
                    let first = answer.chunk().await.ok()??;
                    let rest = if is_cut {
                        Bytes::new()
                    } else {
                        answer.bytes().await.ok()?
                    };
                    Some([first, rest].concat())
                };
                let answer = timeout(if is_cut { ends } else { LONG }, called).await;
                let own = number.to_string().into_bytes();
                match answer.ok().flatten() {
                    Some(answer) if is_cut => {
                        assert!(own.starts_with(&answer), "{number}: {answer:?}")
                    }
                    Some(answer) => assert_eq!(answer, own),
                    None => return (number, is_post, false),
                }
                (number, is_post, true)
            });
            if rng.u8(..3) == 0 {
                sleep(Duration::from_millis(rng.u64(..20))).await;
            }
        }
        let ended = calls.join_all().await;
        let answered = ended
            .iter()
            .filter(|(.., is_answered)| *is_answered)
            .count();
        assert!(answered > 200, "seed {seed}: {answered}");
        let seen = seen.lock().expect("no panic");
        for (number, ..) in ended.iter().filter(|(_, is_post, _)| *is_post) {
            let times = seen.iter().filter(|seen| *seen == number).count();
            assert!(times <= 1, "seed {seed}: {number} was sent {times} times");
        }
    }
}
