//! The pool of connections, as a server at the other end of its pipes sees it, under paused time.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use futures_util::{StreamExt as _, future::BoxFuture, stream};
use http::{Request, Uri};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper_util::client::legacy::connect::Connected;
use tokio::time::{Instant, sleep, timeout};
use tower_tds::{
    Builder, Client, Error, Kind, Limits, Quota, RequestBody,
    layers::{errors::Sent, limits::Rules},
};

use crate::client::{
    raw::{Act, Asked, Raw, answer, say},
    world::{Built as _, PATH, SECOND, at_once, connector, count, https, pipe, read, secret},
};

/// Time to the response head of the call with this number.
type Delay = fn(usize) -> Duration;

/// A data server behind pipes.
struct Pipes {
    raw: Raw,
    /// Each connect that has begun and not ended holds it.
    connecting: Arc<()>,
    /// Connections up to this number get no answer, and no end.
    silent: Arc<AtomicUsize>,
}

// === impl Pipes ===

impl Pipes {
    fn new(delay: Delay) -> Self {
        let silent = Arc::<AtomicUsize>::default();
        let until = Arc::clone(&silent);
        Self::scripted(silent, move |asked| {
            match asked.connection <= until.load(SeqCst) {
                true => vec![Act::Hang],
                false => vec![Act::Wait(delay(asked.call)), say(answer("200 OK", "ok"))],
            }
        })
    }

    fn scripted(
        silent: Arc<AtomicUsize>,
        script: impl Fn(&Asked<'_>) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        Self {
            raw: Raw::of(script),
            connecting: Arc::default(),
            silent,
        }
    }

    fn builder(&self, connect: Duration) -> Builder {
        let (raw, connecting) = (self.raw.clone(), Arc::downgrade(&self.connecting));
        let pipes = connector(move |target: Uri| {
            let (raw, connecting) = (raw.clone(), connecting.clone());
            async move {
                if target.host() == Some("data.example.org") {
                    let _connecting = connecting.upgrade();
                    sleep(connect).await;
                }
                Ok(raw.pipe())
            }
        });
        let wide = Quota::new(count(2_000), SECOND).expect("a second");
        let limits = Limits::new(wide).rules(Rules::window());
        self.raw.builder().limits(limits).connector(pipes)
    }

    /// A client that has a token.
    async fn client(&self, connect: Duration) -> Client {
        let client = self.builder(connect).built();
        client.tokens().ready().await.expect("a token");
        client
    }

    fn connecting(&self) -> usize {
        Arc::strong_count(&self.connecting) - 1
    }
}

/// Makes calls at once. Returns how long each took.
async fn calls(client: &Client, number: usize, deadline: Duration) -> Vec<Result<Duration, Error>> {
    let timed = |_| {
        let read = read(client.get(PATH).deadline(deadline));
        let begins = Instant::now();
        Box::pin(async move { read.await.map(|_| begins.elapsed()) }) as _
    };
    at_once((0..number).map(timed)).await
}

/// The same for calls that are all answered.
async fn answered(client: &Client, number: usize) {
    for answered in calls(client, number, LONG).await {
        answered.expect("it is answered");
    }
}

const LONG: Duration = Duration::from_secs(600);

#[tokio::test(start_paused = true)]
async fn silent_connections_cost_only_the_calls_that_met_them_first() {
    for usual in [|_: usize| Duration::from_millis(1), |_: usize| SECOND / 10] {
        for deadline in [3, 10, 40].map(|seconds| SECOND * seconds) {
            let net = Pipes::new(usual);
            let client = net.client(Duration::ZERO).await;
            answered(&client, 40).await;
            assert_eq!(net.raw.connects(), 40);
            sleep(SECOND).await;
            // All connections are cut off.
            net.silent.store(40, SeqCst);
            let groups = [0, 1, 4, 8].map(|begins: u32| {
                let client = client.clone();
                Box::pin(async move {
                    sleep(SECOND * begins).await;
                    (begins, calls(&client, 10, deadline).await)
                }) as BoxFuture<'static, (u32, Vec<Result<Duration, Error>>)>
            });
            for (begins, ended) in at_once(groups).await {
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
        let net = Pipes::new(delay);
        let client = net.client(Duration::ZERO).await;
        let lanes = |number: u32| {
            at_once([(); 10].map(|()| {
                let client = client.clone();
                Box::pin(async move {
                    for _ in 0..number {
                        let answer = read(client.get(PATH).deadline(LONG)).await;
                        answer.expect("a body");
                        sleep(SECOND / 100).await;
                    }
                }) as _
            }))
        };
        // The first calls open what the others reuse.
        lanes(10).await;
        let before = net.raw.connects();
        lanes(100).await;
        let more = net.raw.connects() - before;
        assert!(more <= 20, "case {n}: {more} connects in 1,000 calls");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_connections_close_with_the_last_client_and_after_a_shutdown() {
    for shuts_down in [false, true] {
        let net = Pipes::new(|_| SECOND / 10);
        let client = net.client(Duration::ZERO).await;
        let other = client.clone();
        answered(&client, 40).await;
        drop(client);
        sleep(SECOND / 5).await;
        assert_eq!(net.raw.open(), 40, "a clone is left");
        let body = other.get(PATH).await.expect("a head");
        if shuts_down {
            other.shutdown(Duration::ZERO).await;
        } else {
            drop(other);
        }
        sleep(SECOND / 5).await;
        assert_eq!(net.raw.open(), 1, "its body is unread");
        assert_eq!(body.bytes().await.expect("a body"), "ok");
        sleep(SECOND / 5).await;
        assert_eq!(net.raw.open(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn connects_that_no_call_awaits_end_with_the_last_client() {
    let net = Pipes::new(|_| SECOND / 10);
    let client = net.client(SECOND * 5).await;
    // The calls give up while their connects go on.
    for ended in calls(&client, 10, SECOND).await {
        let error = ended.expect_err("no connection yet");
        assert_eq!(error.kind(), Kind::Timeout);
    }
    assert_eq!(net.connecting(), 10, "for later calls");
    drop(client);
    // The limit lets a connect go on for a second.
    sleep(SECOND + SECOND / 5).await;
    assert_eq!((net.connecting(), net.raw.connects()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn connect_of_a_call_that_has_gone_serves_the_next_one_and_sends_nothing_for_it() {
    let net = Pipes::new(|_| Duration::ZERO);
    let client = net.client(SECOND * 2).await;
    let gone = calls(&client, 1, SECOND).await.remove(0);
    let gone = gone.expect_err("no connection yet");
    assert_eq!(gone.sent(), Sent::Never, "{gone}");
    assert_eq!(gone.waited_for(), Some("a connection"));
    let cancelled = timeout(SECOND / 2, client.get(PATH));
    cancelled.await.map(drop).expect_err("no connection yet");
    sleep(SECOND * 2).await;
    let begins = Instant::now();
    answered(&client, 1).await;
    assert!(begins.elapsed() < SECOND, "it did not connect");
    // Nothing was sent for those that have gone.
    assert_eq!((net.raw.connects(), net.raw.calls().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn idle_connection_closes_after_thirty_seconds() {
    let net = Pipes::new(|_| Duration::ZERO);
    let client = net.client(Duration::ZERO).await;
    for (waits, connects) in [(0, 1), (29, 1), (29, 1), (31, 2)] {
        sleep(SECOND * waits).await;
        answered(&client, 1).await;
        assert_eq!(net.raw.connects(), connects, "after {waits} s");
    }
    sleep(SECOND * 31).await;
    assert_eq!(net.raw.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn connection_that_negotiated_http2_is_refused_by_name() {
    let pipes = connector(async |_: Uri| {
        let (mut pipe, _) = pipe();
        pipe.connected = || Connected::new().negotiated_h2();
        Ok(pipe)
    });
    let error = https(secret()).connector(pipes).built().get("/").await;
    let error = error.expect_err("no HTTP/1.1");
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
    let raw = Raw::start(|_| vec![Act::Early(answer("200 OK", ""))]).await;
    let limits = Limits::default().rules(Rules::window());
    let client = raw.builder().limits(limits).built();
    let uploads = (0..20).map(|_| {
        let upload = Request::put("/").body(endless()).expect("a request");
        read(client.request(upload))
    });
    for early in at_once(uploads).await {
        early.expect("an early answer");
    }
    let later = timeout(SECOND * 10, answered(&client, 10)).await;
    later.expect("none hangs");
}

/// Answers with the number in the path, and troubles each call in its own way.
fn chaos(asked: &Asked<'_>, rng: &mut Rng) -> Vec<Act> {
    let number = asked.head.split([' ', '/']).nth(2).expect("a number");
    let (half, rest) = number.split_at(number.len() / 2);
    let plain = |headers: &str, body: &str| {
        let length = number.len();
        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
    };
    let (whole, way) = (plain("", number), rng.u8(..8));
    let parts = match way {
        0 => vec![],
        1 => vec!["HTTP/1.1 103 Early Hints\r\n\r\n".to_owned(), whole],
        2 => vec![
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned(),
            format!("2\r\n{half}\r\n2\r\n{rest}\r\n0\r\nx: y\r\n\r\n"),
        ],
        3 => vec![plain("connection: close\r\n", number)],
        // An answer to nothing, together with this one. Behind the next request, no client could tell it.
        4 => vec![whole + "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray"],
        5 => vec![plain("", half), rest.to_owned()],
        6 => vec![plain("", half)],
        _ => vec![whole],
    };
    let mut acts = vec![Act::Wait(Duration::from_millis(rng.u64(..40)))];
    for part in parts {
        acts.extend([say(part), Act::Wait(Duration::from_millis(rng.u64(..10)))]);
    }
    if [0, 3, 6].contains(&way) {
        acts.push(Act::Cut);
    }
    acts
}

#[tokio::test(start_paused = true)]
async fn each_call_gets_its_own_answer_and_no_post_is_sent_twice() {
    for seed in 0..20 {
        let troubles = Mutex::new(Rng::with_seed(seed));
        let net = Pipes::scripted(Arc::default(), move |asked| {
            chaos(asked, &mut troubles.lock().expect("no panic"))
        });
        let client = net.builder(Duration::ZERO).built();
        let mut rng = Rng::with_seed(seed);
        let mut calls = Vec::new();
        for number in 1_000..1_400_u64 {
            let is_post = rng.u8(..4) == 0;
            let request = Request::builder().method(if is_post { "POST" } else { "GET" });
            let request = request.uri(format!("/{number}")).body("");
            let call = client.request(request.expect("a request"));
            let (ends, is_cut) = (Duration::from_millis(rng.u64(..200)), rng.u8(..8) == 0);
            calls.push(tokio::spawn(async move {
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
                let (own, answer) = (number.to_string().into_bytes(), answer.ok().flatten());
                if let Some(answer) = &answer {
                    let is_own = *answer == own || is_cut && own.starts_with(answer);
                    assert!(is_own, "{number}: {answer:?}");
                }
                (number, is_post, answer.is_some())
            }));
            if rng.u8(..3) == 0 {
                sleep(Duration::from_millis(rng.u64(..20))).await;
            }
        }
        let (mut answered, mut posts) = (0, Vec::new());
        for call in calls {
            let (number, is_post, is_answered) = call.await.expect("no panic");
            answered += usize::from(is_answered);
            posts.extend(is_post.then(|| format!("POST /{number} ")));
        }
        assert!(answered > 200, "seed {seed}: {answered}");
        let seen = net.raw.calls();
        for post in posts {
            let times = seen.iter().filter(|seen| seen.starts_with(&post)).count();
            assert!(times <= 1, "seed {seed}: {post} was sent {times} times");
        }
    }
}
