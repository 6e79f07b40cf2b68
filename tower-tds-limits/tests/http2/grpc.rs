//! tonic's channels over a limited connector.

use std::{error::Error as _, time::Duration};

use http::Request;
use http_body_util::BodyExt;
use hyper_util::client::legacy::connect::HttpConnector;
use tonic::{
    body::Body,
    transport::{Channel, Endpoint},
};
use tower::{Layer, ServiceExt};
use tower_tds_limits::{ConnectionLimitLayer, LimitError, Limiter, Limits};

use crate::{
    count,
    server::{self, Server},
};

fn channel(server: &Server, limiter: &Limiter) -> Channel {
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(HttpConnector::new());
    // Times connects alone: the wait for a permit is longer here.
    Endpoint::from(server.uri())
        .connect_timeout(Duration::from_millis(200))
        .connect_with_connector_lazy(connector)
}

async fn call(channel: Channel, server: &Server) -> Result<(), tonic::transport::Error> {
    let request = Request::get(server.uri()).body(Body::empty());
    let response = channel.oneshot(request.expect("a request")).await?;
    let body = response.into_body().collect().await.expect("a body");
    assert_eq!(body.to_bytes(), server::BODY);
    Ok(())
}

#[tokio::test]
async fn tonic_channels_share_the_limit() {
    let server = Server::start_plain().await;
    let limits = Limits::default()
        .connections(count(2))
        .max_wait(Duration::from_millis(300));
    let limiter = Limiter::new(limits);
    let [one, two, three] = [(); 3].map(|()| channel(&server, &limiter));
    for _ in 0..10 {
        call(one.clone(), &server).await.expect("an answer");
        call(two.clone(), &server).await.expect("an answer");
    }
    assert_eq!(limiter.snapshot().connections, 2);

    let error = call(three.clone(), &server).await;
    let error = error.expect_err("both permits are held");
    let mut chain = std::iter::successors(error.source(), |error| (*error).source());
    let limit = chain.find_map(|error| error.downcast_ref::<LimitError>());
    assert!(limit.expect("the limit's own").is_timeout());

    drop(one);
    server.closed_all_but(1).await;
    call(three, &server).await.expect("there is room");
    assert_eq!(server.peak_sockets(), 2);
}
