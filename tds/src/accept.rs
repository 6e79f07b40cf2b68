//! Connections of users: HTTP/1.1, and an end for half-sent requests.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::response::Response;
use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{rt::TokioIo, server::graceful::GracefulShutdown};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::io::InspectReader;

/// Stage of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No request has begun. Users may stay idle as long as they like.
    Idle,
    /// A part of a request's head has come since this instant.
    Head(Instant),
    /// A request is being answered, and what follows waits for its turn.
    Busy,
}

/// Stage of one connection. A plain lock, because with a channel that wakes a task a response of
/// the cache took 33,000 instructions in place of 29,000 (callgrind).
#[derive(Debug, Clone)]
struct Shared(Arc<Mutex<Stage>>);

/// Serves users by `answer` until `stop` ends, then finishes the requests in flight.
pub(crate) async fn serve<F, A>(listener: TcpListener, answer: F, stop: impl Future<Output = ()>)
where
    F: Fn(SocketAddr, Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Response> + Send + 'static,
{
    let mut stop = pin!(stop);
    let connections = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let Ok((stream, user)) = accepted else {
            // An accept fails, for example, when no file descriptor is left; a later one may
            // succeed.
            sleep(SOON).await;
            continue;
        };
        let stage = Shared(Arc::new(Mutex::new(Stage::Idle)));
        let late = half_sent(stage.clone());
        let answer = answer.clone();
        let inspected = inspected(stream, stage.clone());
        let service = service_fn(move |request| {
            *stage.lock() = Stage::Busy;
            let (answered, stage) = (answer(user, request), stage.clone());
            async move {
                let response = answered.await;
                *stage.lock() = Stage::Idle;
                Ok::<_, Infallible>(response)
            }
        });
        let mut http = http1::Builder::new();
        // Its own timeout would end idle connections as well.
        let connection = http
            .header_read_timeout(None)
            .serve_connection(TokioIo::new(inspected), service);
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                ended = connection => drop(ended),
                () = late => {}
            }
        });
    }
    drop(listener);
    connections.shutdown().await;
}

// === impl Shared ===

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn inspected(stream: TcpStream, stage: Shared) -> InspectReader<TcpStream, impl FnMut(&[u8])> {
    InspectReader::new(stream, move |data| {
        let mut stage = stage.lock();
        if *stage == Stage::Idle && !data.is_empty() {
            *stage = Stage::Head(Instant::now());
        }
    })
}

/// Ends when a request has been half-sent for too long.
async fn half_sent(stage: Shared) {
    let mut look = Instant::now() + HEAD;
    loop {
        sleep_until(look).await;
        let now = Instant::now();
        // A head that began meanwhile gets its full time.
        let stage = *stage.lock();
        look = match stage {
            Stage::Head(begun) if begun + HEAD <= now => return,
            Stage::Head(begun) => begun + HEAD,
            Stage::Idle | Stage::Busy => now + HEAD,
        };
    }
}

/// How long a user may take for the head of a request.
const HEAD: Duration = Duration::from_secs(10);

const SOON: Duration = Duration::from_secs(1);
