//! tonic's channels over a limited connector.

use std::{error::Error as _, time::Duration};

use http::{Request, Uri};
use http_body_util::BodyExt;
use hyper_util::client::legacy::connect::HttpConnector;
use tonic::{
    body::Body,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_tds_limits::{
    ConnectionLimitLayer, DetachLayer, LimitError, Limiter, Limits, ReadResponse, RequestLimitLayer,
};

use crate::{
    count,
    server::{self, Server},
};

fn channel(server: &Server, limiter: &Limiter) -> Channel {
    let connector = ConnectionLimitLayer::new(limiter.clone()).layer(HttpConnector::new());
    // Times connects alone: the wait for a permit is longer here.
    Endpoint::from(server.uri())
        .connect_timeout(Duration::from_secs(20))
        .connect_with_connector_lazy(connector)
}

/// Under TLS of tonic's own.
fn tls_channel(server: &Server, limiter: &Limiter) -> Channel {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(server.pem()));
    let endpoint = Endpoint::from(server.uri()).tls_config(tls);
    let endpoint = endpoint.expect("a certificate");
    endpoint.connect_with_connector_lazy(ConnectionLimitLayer::new(limiter.clone()).layer(tcp))
}

type Response = http::Response<Body>;

async fn send(channel: Channel, uri: Uri) -> Result<Response, tonic::transport::Error> {
    let request = Request::get(uri).body(Body::empty());
    channel.oneshot(request.expect("a request")).await
}

async fn read(response: Response) {
    let body = response.into_body().collect().await.expect("a body");
    assert_eq!(body.to_bytes(), server::BODY);
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
        for channel in [&one, &two] {
            let response = send(channel.clone(), server.uri()).await;
            read(response.expect("an answer")).await;
        }
    }
    assert_eq!(limiter.snapshot().connections, 2);
    let busy = send(one.clone(), server.held()).await.expect("a head");
    let too = send(two.clone(), server.held()).await.expect("a head");

    let error = send(three.clone(), server.uri()).await;
    let error = error.expect_err("both permits are in use");
    let mut chain = std::iter::successors(error.source(), |error| (*error).source());
    let limit = chain.find_map(|error| error.downcast_ref::<LimitError>());
    assert!(limit.expect("the limit's own").is_timeout());
    assert_eq!(server.opened_sockets(), 2);

    // Nothing of a channel's says when its socket is idle: it stays for as long as the channel.
    server.release();
    for response in [busy, too] {
        read(response).await;
    }
    drop(one);
    let response = send(three, server.uri()).await;
    read(response.expect("there is room")).await;
    assert_eq!(server.peak_sockets(), 2);
}

#[tokio::test]
async fn tonics_own_tls_is_made_above_the_limit() {
    let server = Server::start().await;
    let limiter = Limiter::new(Limits::default().connections(count(1)));
    let channel = tls_channel(&server, &limiter);
    server.refuse_handshakes(true);
    for _ in 0..3 {
        let refused = send(channel.clone(), server.uri()).await;
        refused.expect_err("no handshake succeeds");
    }
    server.refuse_handshakes(false);
    for _ in 0..3 {
        let response = send(channel.clone(), server.uri()).await;
        read(response.expect("an answer")).await;
    }
    drop(channel);
    let next = send(tls_channel(&server, &limiter), server.uri()).await;
    read(next.expect("there is room")).await;
    assert_eq!((server.peak_sockets(), server.opened_sockets()), (1, 5));
}

/// tonic's bodies can neither be cloned nor shared between threads.
#[tokio::test]
async fn the_request_limit_goes_over_a_tonic_channel() {
    let server = Server::start_plain().await;
    let limiter = Limiter::new(Limits::default());
    let service = ServiceBuilder::new()
        .layer(DetachLayer)
        .layer(RequestLimitLayer::new(limiter.clone()).feedback(ReadResponse))
        .service(channel(&server, &limiter));
    let request = Request::get(server.uri()).body(Body::empty());
    let response = service.clone().oneshot(request.expect("a request")).await;
    let response = response.expect("an answer");
    assert_eq!(limiter.snapshot().in_flight, 1);
    let body = response.into_body().collect().await.expect("a body");
    assert_eq!(body.to_bytes(), server::BODY);
    assert_eq!(limiter.snapshot().in_flight, 0);

    // Whose caller goes is seen to its end.
    let request = Request::get(server.held()).body(Body::empty());
    let call = tokio::spawn(service.oneshot(request.expect("a request")));
    while limiter.snapshot().in_flight == 0 {
        tokio::task::yield_now().await;
    }
    call.abort();
    server.release();
    while limiter.snapshot().in_flight == 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.opened_sockets(), 1);
}
