//! Connections of users: HTTP/1.1.

use std::{convert::Infallible, net::SocketAddr, pin::pin, time::Duration};

use axum::response::Response;
use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{net::TcpListener, time::sleep};

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
        let answer = answer.clone();
        let service = service_fn(move |request| {
            let answered = answer(user, request);
            async move { Ok::<_, Infallible>(answered.await) }
        });
        let mut http = http1::Builder::new();
        let connection = http
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE)
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connections.watch(connection));
    }
    drop(listener);
    connections.shutdown().await;
}

/// How long a connection may be idle, or a user may take for the head of a request. Longer than a
/// proxy in front keeps its idle connections (nginx: 60 s), so that none closes as a request comes.
const IDLE: Duration = Duration::from_secs(75);

const SOON: Duration = Duration::from_secs(1);
