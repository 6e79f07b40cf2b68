//! Whether a dropped call was sent, compared with what the server saw.

use std::{
    collections::HashSet,
    convert::Infallible,
    future::{Future, poll_fn},
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::service::service_fn;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioIo,
};
use tokio::{net::TcpListener, runtime::Handle, task::JoinSet, time::timeout};
use tower::{Layer, ServiceExt};
use tower_tds_limits::{Limiter, Limits, RequestLimitLayer};

/// The paths of the requests that a server has read.
type Seen = Arc<Mutex<HashSet<String>>>;

/// A server that answers after a millisecond. It ends with the runtime.
async fn serve(seen: Seen) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let seen = Arc::clone(&seen);
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let path = request.uri().path().to_owned();
                seen.lock().expect("no panic").insert(path);
                async {
                    tokio::time::sleep(Duration::from_millis(1)).await;
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
                let service = RequestLimitLayer::new(limiter.clone()).layer(client.clone());
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
    tokio::time::sleep(Duration::from_millis(200)).await;
    connections.shutdown_background();
    let seen = seen.lock().expect("no panic");
    let wrong: Vec<_> = unsent.iter().filter(|path| seen.contains(*path)).collect();
    println!("{} dropped unsent, {sent} dropped otherwise", unsent.len());
    assert!(wrong.is_empty(), "the server saw {wrong:?}");
    assert!(
        unsent.len() > 20 && sent > 20,
        "both happen: {} and {sent}",
        unsent.len()
    );
}
