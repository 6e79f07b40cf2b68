//! CPU time of the caller's thread for a whole call over a loopback socket. The server runs on another thread.

use std::{convert::Infallible, net::SocketAddr, num::NonZeroU32, thread, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt, Empty, Full};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioIo},
};
use rustix::time::{ClockId, clock_gettime};
use tds_sim::{Config, Server};
use tokio::{net::TcpListener, runtime};
use tower_tds::{Client, Credentials, Limits, Quota};

/// The body of each response.
const BODY: &[u8] = &[b'x'; 1_024];

const PATH: &str = "/v1/live/bus";

fn runtime() -> runtime::Runtime {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

/// A server that answers all requests until the process ends.
fn server() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let addr = listener.local_addr().expect("a socket");
    let answer = service_fn(|_| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(BODY))))
    });
    let serve = async move {
        let listener = TcpListener::from_std(listener).expect("a socket");
        while let Ok((io, _)) = listener.accept().await {
            let connection = http1::Builder::new().serve_connection(TokioIo::new(io), answer);
            // A client may close its connection at any time.
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

/// The median of the rounds, in microseconds of a call.
fn each(runtime: &runtime::Runtime, call: impl AsyncFn() -> usize) -> f64 {
    let mut rounds: Vec<_> = (0..ROUNDS)
        .map(|_| {
            runtime.block_on(async {
                let before = cpu_time();
                for _ in 0..CALLS {
                    assert_eq!(call().await, BODY.len());
                }
                cpu_time().saturating_sub(before)
            })
        })
        .collect();
    rounds.sort_unstable();
    rounds[ROUNDS / 2].as_secs_f64() * 1e6 / f64::from(CALLS)
}

/// A client with a token, far from its limits.
fn client(runtime: &runtime::Runtime, sim: &Server, addr: SocketAddr) -> Client {
    let wide = Quota::new(NonZeroU32::MAX, Duration::from_millis(1));
    let limits = Limits::new(wide.expect("a millisecond is an interval"));
    let id = Credentials::new(sim.client_id(), sim.client_secret()).expect("plain");
    let base = format!("http://{addr}");
    let _guard = runtime.enter();
    Client::builder(sim.auth_url(), &base, id)
        .loopback_http()
        .limits(limits)
        .build()
        .expect("loopback is let through")
}

/// Measures the clients, in microseconds of a call.
pub(crate) fn measure() -> Vec<(&'static str, f64)> {
    let runtime = runtime();
    let sim = runtime.block_on(Server::start(Config::default()));
    let sim = sim.expect("a server");
    let addr = server();
    let uri: Uri = format!("http://{addr}{PATH}").parse().expect("a URI");
    let bearer = format!("Bearer {}", "t".repeat(1_200));
    let bearer = HeaderValue::from_str(&bearer).expect("plain");

    let bare = legacy::Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let hyper_time = each(&runtime, async || {
        let request = Request::get(uri.clone())
            .header(header::AUTHORIZATION, bearer.clone())
            .header(header::USER_AGENT, "bench")
            .body(Empty::new())
            .expect("a request");
        let response = bare.request(request).await.expect("an answer");
        let body = response.into_body().collect().await;
        body.expect("a body").to_bytes().len()
    });

    let ours = client(&runtime, &sim, addr);
    let our_time = each(&runtime, async || {
        let response = ours.get(PATH).await.expect("an answer");
        response.bytes().await.expect("a body").len()
    });

    let builder = reqwest::Client::builder().user_agent("bench").no_proxy();
    let reqwest = builder.build().expect("a client");
    let url = uri.to_string();
    let reqwest_time = each(&runtime, async || {
        let request = reqwest.get(&url).header(header::AUTHORIZATION, &bearer);
        let response = request.send().await.expect("an answer");
        response.bytes().await.expect("a body").len()
    });
    vec![
        ("hyper-util, bare", hyper_time),
        ("tower-tds", our_time),
        ("reqwest", reqwest_time),
    ]
}

const CALLS: u32 = 2_000;
const ROUNDS: usize = 9;
