//! Whether a dropped call was sent, compared with what the server saw.

use std::{
    collections::HashSet,
    convert::Infallible,
    future::{Future, poll_fn},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioIo,
};
use tokio::{
    net::TcpListener,
    runtime::Handle,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_tds_limits::{Limiter, Limits, RequestLimitLayer};

use crate::{
    limited::{Limited, unsent},
    ms, secs,
    service::{Answer, Scripted, request},
};

/// Paths of the requests that a server has read.
type Seen = Arc<Mutex<HashSet<String>>>;

/// A server that answers after a millisecond. It ends with the runtime.
async fn serve(seen: Seen) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let seen = Arc::clone(&seen);
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let path = request.uri().path().to_owned();
                seen.lock().expect("no panic").insert(path);
                async {
                    sleep(Duration::from_millis(1)).await;
                    Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
                }
            });
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(socket), service));
        }
    });
    Ok(format!("http://{address}"))
}

/// Runs connections on a runtime of their own, so that they write heads while calls are dropped.
#[derive(Clone)]
struct Elsewhere(Handle);

impl<F> hyper::rt::Executor<F> for Elsewhere
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        drop(self.0.spawn(task));
    }
}

/// Each call has a limiter of its own, whose live permits show whether the call counts as sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn call_that_returns_its_permit_was_never_sent() {
    let seen = Seen::default();
    let server = serve(Arc::clone(&seen)).await.expect("a port");
    let connections = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime");
    let executor = Elsewhere(connections.handle().clone());
    let mut callers = JoinSet::new();
    for caller in 0..16_u64 {
        let server = server.clone();
        let executor = executor.clone();
        let client = move || -> Client<HttpConnector, Empty<Bytes>> {
            Client::builder(executor.clone()).build_http()
        };
        callers.spawn(async move {
            let mut rng = fastrand::Rng::with_seed(caller);
            let pool = client();
            let (mut unsent, mut sent) = (Vec::new(), 0_usize);
            for call in 0..200 {
                let path = format!("/{caller}/{call}");
                let get = |path: &str| Request::get(format!("{server}{path}")).body(Empty::new());
                let finds_connection = rng.bool();
                let client = if finds_connection {
                    pool.clone()
                } else {
                    client()
                };
                if finds_connection {
                    let warm = client.request(get("/warm").expect("a request"));
                    warm.await.expect("a response");
                }
                let request = get(&path);
                let limiter = Limiter::new(Limits::default());
                let layer = RequestLimitLayer::new(limiter.clone()).over_hyper_http1();
                let service = layer.layer(client.clone());
                let mut response = Box::pin(service.oneshot(request.expect("a request")));
                if finds_connection {
                    // Most of these are dropped while the connection's task writes the head.
                    let polled =
                        poll_fn(|cx| Poll::Ready(response.as_mut().poll(cx).is_ready())).await;
                    for _ in 0..rng.u32(..20_000) {
                        std::hint::spin_loop();
                    }
                    if polled {
                        continue;
                    }
                } else {
                    let patience = Duration::from_micros(rng.u64(..1_500));
                    if timeout(patience, response.as_mut()).await.is_ok() {
                        continue;
                    }
                }
                drop(response);
                {
                    if limiter.snapshot().live == 0 {
                        unsent.push(path);
                    } else {
                        sent += 1;
                    }
                }
            }
            (unsent, sent)
        });
    }
    let (mut unsent, mut sent) = (Vec::new(), 0);
    for (never, other) in callers.join_all().await {
        unsent.extend(never);
        sent += other;
    }
    // Whatever was written is read by then.
    sleep(Duration::from_millis(200)).await;
    connections.shutdown_background();
    let seen = seen.lock().expect("no panic");
    let wrong: Vec<_> = unsent.iter().filter(|path| seen.contains(*path)).collect();
    assert!(wrong.is_empty(), "the server saw {wrong:?}");
    assert!(
        unsent.len() > 20 && sent > 20,
        "both happen: {} and {sent}",
        unsent.len()
    );
}

/// Keeps the head of each request while its copy is on the wire, as a layer that signs requests does.
fn signing(
    service: Scripted,
) -> impl Service<
    Request<Empty<Bytes>>,
    Response = Response<Empty<Bytes>>,
    Error = Infallible,
    Future: Send + Unpin,
> + Clone {
    service_fn(move |request: Request<Empty<Bytes>>| {
        let service = service.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let mut signed = Request::new(body);
            signed.headers_mut().clone_from(&head.headers);
            let response = service.oneshot(signed).await;
            drop(head);
            response
        })
    })
}

/// Four hundred calls a second are cancelled after 5 ms each, when all of them are on the wire.
#[tokio::test(start_paused = true)]
async fn calls_cancelled_above_a_layer_that_keeps_their_heads_stay_counted() {
    for detaches in [false, true] {
        let limited = Limited::before(Scripted::new(ms(100), |_| Answer::ok()));
        let layer = RequestLimitLayer::new(limited.limiter.clone());
        let service = signing(limited.service.clone());
        let begin = Instant::now();
        let mut calls = JoinSet::new();
        for _ in 0..2_000 {
            let patience = ms(5);
            if detaches {
                let service = layer.clone().detached().layer(service.clone());
                calls.spawn(
                    async move { timeout(patience, service.oneshot(request())).await.is_ok() },
                );
            } else {
                let service = layer.layer(service.clone());
                calls.spawn(
                    async move { timeout(patience, service.oneshot(request())).await.is_ok() },
                );
            }
            sleep(Duration::from_micros(2_500)).await;
        }
        calls.join_all().await;
        let arrivals = limited.service.arrivals();
        for first in &arrivals {
            let second = arrivals
                .iter()
                .filter(|at| *at >= first && **at < *first + secs(1));
            assert!(second.count() <= 50, "from {:?}", *first - begin);
        }
        assert!(arrivals.len() >= 10, "{}", arrivals.len());
    }
}

/// Nothing shows whether such a call was sent, so its error says that it may have been.
#[tokio::test(start_paused = true)]
async fn deadline_of_a_call_that_may_be_sent_drops_it_and_says_so() {
    for detaches in [false, true] {
        let limiter = Limiter::new(Limits::default());
        let (connected, sent) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counts = (Arc::clone(&connected), Arc::clone(&sent));
        // Connects for a second, then sends.
        let connects = service_fn(move |_: Request<Empty<Bytes>>| {
            let (connected, sent) = (Arc::clone(&counts.0), Arc::clone(&counts.1));
            Box::pin(async move {
                connected.fetch_add(1, Ordering::Relaxed);
                sleep(secs(1)).await;
                sent.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            })
        });
        let layer = RequestLimitLayer::new(limiter.clone()).answer_timeout(ms(400));
        let begin = Instant::now();
        let answer = if detaches {
            layer.detached().layer(connects).oneshot(request()).await
        } else {
            layer.layer(connects).oneshot(request()).await
        };
        let error = unsent(answer).expect("a timeout");
        assert_eq!(begin.elapsed(), ms(400), "the time counts from the call");
        assert!(error.is_answer_timeout() && error.was_sent() && !error.is_deadline());
        assert!(
            error.to_string().ends_with("request may have been sent"),
            "{error}"
        );
        sleep(secs(5)).await;
        assert_eq!(connected.load(Ordering::Relaxed), 1);
        assert_eq!(sent.load(Ordering::Relaxed), 0, "nothing is sent later");
        assert_eq!(limiter.snapshot().live, 1, "it counts as sent");
    }
}
