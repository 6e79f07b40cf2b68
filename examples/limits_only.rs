//! The limits alone, around hyper-util's client. Your requests carry a token of your own.

#![expect(clippy::print_stdout, reason = "the output of a program")]

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tds_sim::{Config, Server};
use tokio::task::JoinSet;
use tower::{BoxError, Layer, ServiceExt};
use tower_tds_limits::{ConnectionLimitLayer, Limiter, Limits, RequestLimitLayer};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let server = Server::start(Config::default()).await?;
    let token = server.token(server.client_id())?;

    // The default is 50 requests in any second and 60 sockets. Set others by
    // `Limits::new(quota).connections(n)`.
    let limiter = Limiter::new(Limits::default());
    let mut tcp = HttpConnector::new();
    // Without this timeout, the kernel resends abandoned requests when a cut of the network heals.
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(limiter.limits().tcp_user_timeout()));
    let sockets = ConnectionLimitLayer::new(limiter.clone()).layer(tcp);
    let http = Client::builder(TokioExecutor::new()).build(sockets);
    let service = RequestLimitLayer::new(limiter.clone()).layer(http);

    let mut calls = JoinSet::new();
    for line in 0..120 {
        let request = Request::get(format!("{}/v1/live/bus-{line}", server.base_url()))
            .header("authorization", format!("Bearer {token}"))
            .body(Empty::<Bytes>::new())?;
        let call = service.clone().oneshot(request);
        // A call holds its slot in flight until its body has been read.
        calls.spawn(async move { Ok::<_, BoxError>(call.await?.into_body().collect().await?) });
    }
    while let Some(call) = calls.join_next().await {
        call??;
    }
    println!("{} permits granted", limiter.snapshot().granted);

    let seen = server.ledger().summary();
    println!(
        "the service saw {} calls, at most {} in a second and {} sockets, and answered {:?}",
        seen.data_calls, seen.largest_second, seen.peak_sockets, seen.by_status
    );
    Ok(())
}
