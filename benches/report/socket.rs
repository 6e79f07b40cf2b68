//! Whole calls over a loopback socket: the clients beside each other. The server runs on another thread.

use std::{
    convert::Infallible, net::SocketAddr, num::NonZeroU32, sync::Arc, thread, time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use rustix::time::{ClockId, clock_gettime};
use tds_sim::{Config, Server};
use tokio::{
    net::TcpListener,
    runtime,
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tower::{Layer, ServiceExt};
use tower_tds::{Client, Credentials, Limits, Quota, TdsLayer};

/// Costs of each client for a GET with the same token, read to its end.
pub(crate) struct Rows {
    pub(crate) names: [&'static str; 4],
    /// Microseconds of CPU of a call.
    pub(crate) cpu: Vec<f64>,
    /// Rate of calls that begin at random times.
    pub(crate) latency: Vec<(u32, Vec<Latency>)>,
    /// Calls at once, over at most 60 sockets; microseconds of CPU of a call.
    pub(crate) at_once: Vec<(u32, Vec<f64>)>,
    /// The bytes of a body; megabytes a second.
    pub(crate) bodies: Vec<(usize, Vec<f64>)>,
}

/// Milliseconds of calls that begin at random times, and microseconds of CPU of a call.
pub(crate) struct Latency {
    pub(crate) median: f64,
    pub(crate) most: f64,
    pub(crate) cpu: f64,
}

/// A client, as its users call it.
#[derive(Clone)]
enum Peer {
    Bare(Http, HeaderValue),
    Client(Client),
    Layer(Whole),
    Reqwest(reqwest::Client, HeaderValue),
}

type Http = legacy::Client<HttpConnector, Full<Bytes>>;
type Whole = <TdsLayer as Layer<Http>>::Service;

// === impl Peer ===

impl Peer {
    /// Makes a call, and reads its body. Returns the number of its bytes.
    async fn get(&self, url: &str) -> usize {
        let request = |bearer: Option<&HeaderValue>| {
            let request = Request::get(url).header(header::USER_AGENT, "bench");
            let request = match bearer {
                Some(bearer) => request.header(header::AUTHORIZATION, bearer.clone()),
                None => request,
            };
            request.body(Full::default()).expect("a request")
        };
        match self {
            Self::Bare(http, bearer) => {
                let response = http.request(request(Some(bearer))).await;
                length(response.expect("an answer").into_body()).await
            }
            Self::Layer(service) => {
                let response = service.clone().oneshot(request(None)).await;
                length(response.expect("an answer").into_body()).await
            }
            Self::Client(client) => {
                let response = client.get(url).await.expect("an answer");
                length(response.into_http().into_body()).await
            }
            Self::Reqwest(client, bearer) => {
                let request = client.get(url).header(header::AUTHORIZATION, bearer);
                let response = Response::from(request.send().await.expect("an answer"));
                length(response.into_body()).await
            }
        }
    }
}

async fn length<B>(body: B) -> usize
where
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug>,
{
    let mut body = std::pin::pin!(body);
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame.expect("a body").data_ref().map_or(0, Bytes::len);
    }
    length
}

/// Measures the clients.
pub(crate) fn measure() -> Rows {
    let runtime = runtime();
    let sim = runtime.block_on(Server::start(Config::default()));
    let sim = sim.expect("a server");
    let addr = server();
    let client = client(&runtime, &sim, addr);
    // As long as the tokens of the simulator, which the other clients send.
    let bearer = format!("Bearer {}", "t".repeat(919));
    let bearer = HeaderValue::from_str(&bearer).expect("plain");
    let http: Http = legacy::Client::builder(TokioExecutor::new()).build_http();
    let builder = reqwest::Client::builder().user_agent("bench").no_proxy();
    let reqwest = builder.build().expect("a client");
    let peers = [
        Peer::Bare(http.clone(), bearer.clone()),
        Peer::Client(client.clone()),
        Peer::Layer(client.layer().layer(http)),
        Peer::Reqwest(reqwest, bearer),
    ];
    let url = |bytes: usize| format!("http://{addr}/v1/bytes/{bytes}");
    // The median of rounds in turn, so that a slow minute of the machine meets all clients.
    let of_all = |rounds: usize, measure: &dyn Fn(&Peer) -> f64| {
        let mut all = vec![Vec::new(); peers.len()];
        for _ in 0..rounds {
            for (rounds, peer) in all.iter_mut().zip(&peers) {
                rounds.push(measure(peer));
            }
        }
        all.into_iter().map(median).collect::<Vec<_>>()
    };

    let small = url(1_024);
    let cpu = of_all(9, &|peer| runtime.block_on(cpu(peer, &small, CALLS)));
    let latency = |rate| {
        let each = peers.iter();
        let each = each.map(|peer| runtime.block_on(latency(peer, &small, rate)));
        (rate, each.collect())
    };
    let at_once = |calls| {
        (
            calls,
            of_all(3, &|peer| runtime.block_on(at_once(peer, &small, calls))),
        )
    };
    let body = |bytes| {
        let url = url(bytes);
        (
            bytes,
            of_all(3, &|peer| runtime.block_on(speed(peer, &url, bytes))),
        )
    };
    Rows {
        names: [
            "hyper-util, bare",
            "tower-tds: Client",
            "tower-tds: TdsLayer",
            "reqwest",
        ],
        cpu,
        latency: [50, 5_000].map(latency).into(),
        at_once: [10, 100, 1_000, 10_000].map(at_once).into(),
        bodies: [1 << 10, 1 << 20, 100 << 20].map(body).into(),
    }
}

/// The CPU time of calls one after the other, in microseconds of a call.
async fn cpu(peer: &Peer, url: &str, calls: u32) -> f64 {
    let before = cpu_time();
    for _ in 0..calls {
        assert_eq!(peer.get(url).await, 1_024);
    }
    micros(cpu_time().saturating_sub(before), calls)
}

/// Calls at random times, whether earlier ones have ended or not: the median and the 99th percentile
/// of the time from when a call was due to the end of its body.
async fn latency(peer: &Peer, url: &str, rate: u32) -> Latency {
    let calls = (rate * 4).clamp(500, 20_000);
    let url: Arc<str> = url.into();
    let places = places(peer);
    let mut rng = Rng::with_seed(7);
    let mut due = Instant::now();
    let mut tasks = JoinSet::new();
    let before = cpu_time();
    for _ in 0..calls {
        due += Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / f64::from(rate));
        sleep_until(due).await;
        let (peer, url, places) = (peer.clone(), Arc::clone(&url), Arc::clone(&places));
        tasks.spawn(async move {
            let _place = places.acquire().await.expect("it is open");
            peer.get(&url).await;
            due.elapsed().as_secs_f64() * 1e3
        });
    }
    let mut times = tasks.join_all().await;
    times.sort_by(f64::total_cmp);
    Latency {
        median: times[times.len() / 2],
        most: times[times.len() * 99 / 100],
        cpu: micros(cpu_time().saturating_sub(before), calls),
    }
}

/// `Client` keeps to 60 sockets by its limits. For the others a semaphore does.
fn places(peer: &Peer) -> Arc<Semaphore> {
    let is_limited = matches!(peer, Peer::Client(_));
    let places = if is_limited {
        Semaphore::MAX_PERMITS
    } else {
        60
    };
    Arc::new(Semaphore::new(places))
}

/// The CPU time of calls that begin at the same time, in microseconds of a call.
async fn at_once(peer: &Peer, url: &str, calls: u32) -> f64 {
    let url: Arc<str> = url.into();
    let places = places(peer);
    let rounds = (1_000 / calls).max(3);
    let before = cpu_time();
    for _ in 0..rounds {
        let mut tasks = JoinSet::new();
        for _ in 0..calls {
            let (peer, url, places) = (peer.clone(), Arc::clone(&url), Arc::clone(&places));
            tasks.spawn(async move {
                let _place = places.acquire().await.expect("it is open");
                peer.get(&url).await
            });
        }
        tasks.join_all().await;
    }
    micros(cpu_time().saturating_sub(before), rounds * calls)
}

/// Megabytes a second of bodies one after the other.
async fn speed(peer: &Peer, url: &str, bytes: usize) -> f64 {
    let calls = ((200 << 20) / bytes).clamp(3, 5_000);
    let began = Instant::now();
    for _ in 0..calls {
        assert_eq!(peer.get(url).await, bytes);
    }
    (bytes * calls) as f64 / 1e6 / began.elapsed().as_secs_f64()
}

fn runtime() -> runtime::Runtime {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

/// A server that answers all requests until the process ends, with as many bytes as the path ends
/// with.
fn server() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let addr = listener.local_addr().expect("a socket");
    let all = Bytes::from(vec![b'x'; 100 << 20]);
    let serve = async move {
        let listener = TcpListener::from_std(listener).expect("a socket");
        while let Ok((io, _)) = listener.accept().await {
            io.set_nodelay(true).expect("a socket");
            let all = all.clone();
            let answer = service_fn(move |request: Request<Incoming>| {
                let bytes = request.uri().path().rsplit('/').next();
                let bytes = bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
                let body = Full::new(all.slice(..bytes));
                async { Ok::<_, Infallible>(Response::new(body)) }
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(io), answer);
            // The error is ignored, because a client may close its connection at any time.
            tokio::spawn(async { drop(connection.await) });
        }
    };
    thread::spawn(|| runtime().block_on(serve));
    addr
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("CPU time is not negative")
}

fn micros(time: Duration, calls: u32) -> f64 {
    time.as_secs_f64() * 1e6 / f64::from(calls)
}

fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// A client with a token, whose rate is far from its limit.
fn client(runtime: &runtime::Runtime, sim: &Server, addr: SocketAddr) -> Client {
    let wide = Quota::new(NonZeroU32::MAX, Duration::from_millis(1));
    let limits = Limits::new(wide.expect("a millisecond is an interval"));
    let id = Credentials::new(sim.client_id(), sim.client_secret()).expect("plain");
    let base = format!("http://{addr}");
    let _guard = runtime.enter();
    Client::builder(sim.auth_url(), &base, id)
        .limits(limits)
        .build()
        .expect("loopback is let through")
}

const CALLS: u32 = 2_000;
