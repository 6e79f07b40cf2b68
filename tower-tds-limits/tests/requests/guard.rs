//! Whether a dropped call was sent, compared with what the server saw.

use std::{
    collections::HashSet,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::service::service_fn;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use tokio::{net::TcpListener, task::JoinSet, time::timeout};
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

/// Each call has a limiter of its own, whose live permits show the verdict on that call.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_that_gives_its_permit_back_was_never_sent() {
    let seen = Seen::default();
    let server = serve(Arc::clone(&seen)).await.expect("a port");
    let client: Client<HttpConnector, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).build_http();
    let mut callers = JoinSet::new();
    for caller in 0..16_u64 {
        let (client, server) = (client.clone(), server.clone());
        callers.spawn(async move {
            let mut rng = fastrand::Rng::with_seed(caller);
            let (mut unsent, mut sent) = (Vec::new(), 0_usize);
            for call in 0..250 {
                let path = format!("/{caller}/{call}");
                let request = Request::get(format!("{server}{path}")).body(Empty::new());
                let limiter = Limiter::new(Limits::default());
                let service = RequestLimitLayer::new(limiter.clone()).layer(client.clone());
                let response = service.oneshot(request.expect("a request"));
                let patience = Duration::from_micros(rng.u64(..1_500));
                if let Err(_cancelled) = timeout(patience, response).await {
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
    let seen = seen.lock().expect("no panic");
    let wrong: Vec<_> = unsent.iter().filter(|path| seen.contains(*path)).collect();
    println!("{} dropped unsent, {sent} dropped otherwise", unsent.len());
    assert!(wrong.is_empty(), "the server saw {wrong:?}");
    assert!(unsent.len() > 20 && sent > 20, "both happen: {} and {sent}", unsent.len());
}
