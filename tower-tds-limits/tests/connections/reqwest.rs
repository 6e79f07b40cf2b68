//! reqwest's connector hook may delay a connect and cannot see when its socket closes.

use bytes::Bytes;
use http::{Method, Request, Uri};
use http_body_util::BodyExt;
use tokio::task::JoinSet;
use tower::{
    BoxError, Service, ServiceBuilder, ServiceExt, limit::GlobalConcurrencyLimitLayer, service_fn,
};
use tower_tds_limits::{Error, Limiter, ReadResponse, RequestLimitLayer};

use crate::{
    limiter,
    server::{BODY, Server},
};

/// Sends as the crate's front page says, and returns the most sockets at once.
async fn sockets(server: &Server, limiter: &Limiter, idle: usize, connecting: usize) -> u32 {
    let client = ::reqwest::Client::builder()
        .http1_only()
        .no_proxy()
        .redirect(::reqwest::redirect::Policy::none())
        .retry(::reqwest::retry::never())
        .pool_max_idle_per_host(idle)
        .connector_layer(GlobalConcurrencyLimitLayer::new(connecting))
        .build()
        .expect("a client");
    let service = ServiceBuilder::new()
        .layer(RequestLimitLayer::new(limiter.clone()))
        .service(service_fn(move |request: Request<::reqwest::Body>| {
            let client = client.clone();
            async move {
                let response = client.execute(request.try_into()?).await?;
                Ok::<_, BoxError>(http::Response::<::reqwest::Body>::from(response))
            }
        }));
    let mut calls = JoinSet::new();
    for n in 0..400 {
        let (service, uri) = (service.clone(), server.uri());
        calls.spawn(async move {
            let request = Request::get(uri).body(::reqwest::Body::default());
            let response = service.oneshot(request.expect("a request")).await;
            let body = response.expect("an answer").into_body();
            // Every fourth body is dropped unread, which may end its socket.
            if n % 4 > 0 {
                body.collect().await.expect("a body");
            }
        });
    }
    calls.join_all().await;
    server.peak_sockets()
}

/// Calls over reqwest's own service, whose types are made http's on the way back.
async fn calls_over<S>(reqwest: S, uri: &Uri) -> Result<Bytes, Error<S::Error>>
where
    S: Service<::reqwest::Request, Response = ::reqwest::Response> + Clone + Send + Sync,
    S::Future: Send,
{
    fn crosses_threads<T: Clone + Send + Sync>(service: T) -> T {
        service
    }
    fn is_sent<T: Send>(future: T) -> T {
        future
    }
    let limiter = limiter(2);
    let limited = ServiceBuilder::new()
        .layer(RequestLimitLayer::new(limiter.clone()).feedback(ReadResponse))
        .map_response(http::Response::<::reqwest::Body>::from)
        .service(reqwest);
    let service = crosses_threads(limited);
    let request = ::reqwest::Request::new(Method::GET, uri.to_string().parse().expect("a URL"));
    let response = is_sent(service.oneshot(request)).await?;
    assert_eq!(limiter.snapshot().in_flight, 1);
    let body = response.into_body().collect().await.expect("a body");
    assert_eq!(limiter.snapshot().in_flight, 0);
    Ok(body.to_bytes())
}

#[tokio::test]
async fn the_request_limit_goes_over_reqwests_client_and_a_reference_to_it() {
    let server = Server::start().await;
    let client = ::reqwest::Client::builder().no_proxy().build();
    let client = client.expect("a client");
    let bodies = [
        calls_over(&client, &server.uri()).await,
        calls_over(client.clone(), &server.uri()).await,
    ];
    for body in bodies {
        assert_eq!(body.expect("an answer"), BODY);
    }
    assert_eq!(server.requests(), 2);

    let nobody = Server::start().await.stop().await;
    let error = calls_over(&client, &nobody).await;
    let Err(Error::Inner(error)) = error else {
        panic!("nobody listens");
    };
    assert!(error.is_connect());
}

#[tokio::test]
async fn requests_idle_sockets_and_connects_add_up_to_the_bound_with_reqwest() {
    let server = Server::start().await;
    let peak = sockets(&server, &limiter(6), 2, 2).await;
    assert_eq!(server.requests(), 400);
    assert!(peak <= 6 + 2 + 2, "{peak}");
}

#[tokio::test]
async fn a_limit_of_connects_alone_is_no_limit_of_connections() {
    let server = Server::start().await;
    server.answer_together(100);
    let peak = sockets(&server, &limiter(100), 100, 10).await;
    assert_eq!(peak, 100);
}
