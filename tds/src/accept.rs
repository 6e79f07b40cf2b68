//! The connections of users: HTTP/1.1, and an end for half-sent requests.

use std::{future::pending, pin::pin, sync::Arc, time::Duration};

use axum::{Router, extract::ConnectInfo};
use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{rt::TokioIo, server::graceful::GracefulShutdown};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::io::InspectReader;
use tower::ServiceExt as _;

/// What a connection is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It may be idle for as long as the user likes.
    Idle,
    /// A part of a request has come.
    Head,
    /// A request is answered. What follows waits for its turn.
    Busy,
}

/// Serves users until `stop` ends, and then those whose requests are in flight.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    let mut stop = pin!(stop);
    let connections = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let Ok((stream, user)) = accepted else {
            // For example, there is no further file descriptor.
            sleep(SOON).await;
            continue;
        };
        let (stage, seen) = watch::channel(Stage::Idle);
        let stage = Arc::new(stage);
        let router = router.clone();
        let inspected = inspected(stream, Arc::clone(&stage));
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(user));
            let (router, stage) = (router.clone(), Arc::clone(&stage));
            async move {
                stage.send_replace(Stage::Busy);
                let response = router.oneshot(request).await;
                stage.send_replace(Stage::Idle);
                response
            }
        });
        let mut http = http1::Builder::new();
        // Its own timeout would end idle connections, too.
        let connection = http
            .header_read_timeout(None)
            .serve_connection(TokioIo::new(inspected), service);
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                ended = connection => drop(ended),
                () = half_sent(seen) => {}
            }
        });
    }
    drop(listener);
    connections.shutdown().await;
}

fn inspected(
    stream: TcpStream,
    stage: Arc<watch::Sender<Stage>>,
) -> InspectReader<TcpStream, impl FnMut(&[u8])> {
    InspectReader::new(stream, move |data| {
        stage.send_if_modified(|stage| {
            let begins = *stage == Stage::Idle && !data.is_empty();
            *stage = if begins { Stage::Head } else { *stage };
            begins
        });
    })
}

/// Ends when a request has been half-sent for too long.
async fn half_sent(mut stage: watch::Receiver<Stage>) {
    while stage.wait_for(|stage| *stage == Stage::Head).await.is_ok() {
        let complete = stage.wait_for(|stage| *stage != Stage::Head);
        if timeout(HEAD, complete).await.is_err() {
            return;
        }
    }
    pending().await
}

/// How long a user may take for the head of a request.
const HEAD: Duration = Duration::from_secs(10);

const SOON: Duration = Duration::from_secs(1);
