//! The layer of a client around other clients of the same service, and under tower-http's layers.

#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

use std::{
    convert::Infallible,
    future::ready,
    num::NonZeroU32,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router, body::Body, error_handling::HandleErrorLayer, extract::State, response::IntoResponse,
};
use bytes::Bytes;
use http::{
    HeaderValue, Request, Response, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_ENCODING, HOST, HeaderName},
};
use http_body_util::{BodyExt, Empty, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::{
    client::{
        legacy::{self, connect::HttpConnector},
        pool::cache,
    },
    rt::{TokioExecutor, TokioIo},
};
use tds_sim::{Config, Faults, Server, Summary};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{sleep, timeout},
};
use tonic::transport::{Channel, Endpoint};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, layer::layer_fn, util::AndThen};
use tower_http::{
    catch_panic::CatchPanicLayer, decompression::DecompressionLayer,
    set_header::SetRequestHeaderLayer, timeout::TimeoutLayer, trace::TraceLayer,
};
use tower_tds::{
    Client, Credentials, Deadline, Error, Kind, Limiter, Limits, Quota, Reqwest,
    layers::{
        errors::RetryLayer,
        limits::{self, Background, ConnectionLimitLayer, RequestLimitLayer, Rules},
    },
};

const PATH: &str = "/v1/live/bus";

/// Longer than anything here takes.
const HANGS: Duration = Duration::from_secs(60);

async fn start() -> Server {
    Server::start(Config::default()).await.expect("a free port")
}

fn client(server: &Server) -> Client {
    within(server, Limits::default())
}

fn within(server: &Server, limits: Limits) -> Client {
    let credentials = Credentials::new(server.client_id(), server.client_secret());
    let credentials = credentials.expect("the simulator's are usable");
    Client::builder(server.auth_url(), server.base_url(), credentials)
        .loopback_http()
        .limits(limits)
        .build()
        .expect("loopback is let through")
}

/// Calls 120 times, and once more after its token has died; a path that is not there is told as that.
async fn is_the_whole_stack<S, B, R>(server: &Server, service: S, empty: fn() -> B) -> Summary
where
    S: Service<Request<B>, Response = Response<R>, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: http_body::Body<Data: Send, Error = Error> + Send + 'static,
{
    let base = server.base_url().to_owned();
    let call = move |path: &str| {
        let request = Request::get(format!("{base}{path}")).body(empty());
        service.clone().oneshot(request.expect("a request"))
    };
    let mut calls = JoinSet::new();
    for _ in 0..120 {
        let call = call(PATH);
        calls.spawn(async move { call.await?.into_body().collect().await });
    }
    for body in calls.join_all().await {
        let body = body.expect("a whole body").to_bytes();
        assert!(body.starts_with(b"{\"name\""));
    }
    server.sim().revoke_all();
    let answer = call(PATH).await.expect("data");
    assert_eq!(answer.status(), StatusCode::OK);
    drop(answer);
    let error = call("/no/such/thing").await.map(drop);
    assert_eq!(error.expect_err("nothing").kind(), Kind::NotFound);
    let seen = server.ledger().summary();
    assert_eq!(seen.token_posts, 2);
    assert_eq!(
        (seen.by_status.get(&423), seen.by_status.get(&416)),
        (None, None)
    );
    assert!(
        seen.largest_second <= 50 && seen.peak_sockets <= 60,
        "{seen:?}"
    );
    seen
}

#[tokio::test]
async fn over_hyper_utils_client() {
    let server = start().await;
    let client = client(&server);
    let connector = ConnectionLimitLayer::new(client.limiter().clone()).layer(HttpConnector::new());
    let http = legacy::Client::builder(Background::new(TokioExecutor::new())).build(connector);
    let service = ServiceBuilder::new().layer(client.layer()).service(http);
    is_the_whole_stack(&server, service, Full::<Bytes>::default).await;
}

#[tokio::test]
async fn over_reqwest() {
    let server = start().await;
    let half = NonZeroU32::new(25).expect("it is not zero");
    let client = within(&server, Limits::default().in_flight(half));
    let http = reqwest::Client::builder()
        .no_proxy()
        .pool_max_idle_per_host(25);
    let http = Reqwest::new(http).expect("a client");
    let service = ServiceBuilder::new().layer(client.layer()).service(http);
    is_the_whole_stack(&server, service, Bytes::new).await;
}

/// What becomes of calls that are given up after 100 ms, over a client whose connects take longer, by their deadlines
/// and by their callers; how many requests the service has seen.
async fn given_up_while_connecting<S, B, R>(server: &Server, service: S, empty: fn() -> B) -> u64
where
    S: Service<Request<B>, Response = Response<R>, Error = Error> + Clone,
{
    let call = || {
        let request = Request::get(format!("{}{PATH}", server.base_url())).body(empty());
        let mut request = request.expect("a request");
        let soon = Deadline::after(Duration::from_millis(100));
        request.extensions_mut().insert(soon);
        service.clone().oneshot(request)
    };
    let error = call().await.map(drop).expect_err("no connection");
    assert_eq!(error.kind(), Kind::Timeout);
    let gone = timeout(Duration::from_millis(50), call()).await;
    assert!(gone.is_err(), "no connection");
    sleep(Duration::from_millis(1_000)).await;
    server.ledger().summary().data_calls
}

#[tokio::test]
async fn over_reqwest_what_has_no_connection_is_not_sent_after_its_deadline() {
    let server = start().await;
    let client = client(&server);
    client.tokens().ready().await.expect("a token");
    let slow = layer_fn(|connector| {
        AndThen::new(connector, async |connection| {
            sleep(Duration::from_millis(500)).await;
            Ok(connection)
        })
    });
    let http = reqwest::Client::builder().no_proxy().connector_layer(slow);
    let http = Reqwest::new(http).expect("a client");
    let service = ServiceBuilder::new().layer(client.layer()).service(http);
    let seen = given_up_while_connecting(&server, service, Bytes::new).await;
    assert_eq!(seen, 0);
}

#[tokio::test]
async fn over_reqwest_what_was_sent_is_seen_to_its_end_on_whosever_connection() {
    let server = start().await;
    let mut faults = Faults::default();
    faults.before_head = "400ms".parse().expect("a delay");
    server.sim().set_faults(faults);
    let client = client(&server);
    client.tokens().ready().await.expect("a token");
    let connects = Arc::<AtomicUsize>::default();
    let slow = layer_fn(move |connector| {
        let connects = Arc::clone(&connects);
        AndThen::new(connector, move |connection| {
            let is_first = connects.fetch_add(1, Ordering::SeqCst) == 0;
            let wait = Duration::from_secs(if is_first { 0 } else { 5 });
            async move {
                sleep(wait).await;
                Ok(connection)
            }
        })
    });
    let http = reqwest::Client::builder().no_proxy().connector_layer(slow);
    let http = Reqwest::new(http).expect("a client");
    let service = ServiceBuilder::new().layer(client.layer()).service(http);
    let call = || {
        let request = Request::get(format!("{}{PATH}", server.base_url())).body(Bytes::new());
        tokio::spawn(service.clone().oneshot(request.expect("a request")))
    };
    let first = call();
    sleep(Duration::from_millis(150)).await;
    // It begins to connect, and takes the first one's connection when that is free.
    let second = call();
    let first = first.await.expect("no panic").expect("data").into_body();
    first.collect().await.expect("a whole body");
    while server.ledger().summary().data_calls < 2 {
        sleep(Duration::from_millis(5)).await;
    }
    second.abort();
    client.limiter().idle().await;
    let seen = server.ledger().summary();
    assert_eq!((seen.complete, seen.aborted), (2, 0));
}

/// The cookbook has the same.
#[tokio::test]
async fn over_hyper_utils_pool() {
    let server = start().await;
    let client = client(&server);
    let sockets = ConnectionLimitLayer::new(client.limiter().clone()).layer(HttpConnector::new());
    let connect = sockets.and_then(async |socket| {
        let (sender, connection) = handshake(socket).await?;
        tokio::spawn(connection);
        Ok::<SendRequest<Full<Bytes>>, BoxError>(sender)
    });
    let pool = cache::builder().build(connect.boxed_clone());
    let http = tower::service_fn(move |mut request: Request<Full<Bytes>>| {
        let mut pool = pool.clone();
        pool.retain(|connection: &mut SendRequest<_>| !connection.is_closed());
        Box::pin(async move {
            let host = request.uri().clone();
            let path = host.path_and_query().cloned();
            *request.uri_mut() = path.map(Uri::from).unwrap_or_default();
            let name = host.authority().map(|host| host.as_str().parse());
            let name = name.expect("an absolute address")?;
            request.headers_mut().insert(HOST, name);
            let mut connection = pool.oneshot(host).await?;
            connection.inner_mut().ready().await?;
            let answer = connection.inner_mut().send_request(request).await?;
            Ok::<_, BoxError>(answer.map(|body| {
                body.map_frame(move |frame| {
                    let _held = &connection;
                    frame
                })
            }))
        })
    });
    let service = ServiceBuilder::new().layer(client.layer()).service(http);
    is_the_whole_stack(&server, service, Full::<Bytes>::default).await;
}

/// A service of HTTP/2 that wants a token, fails once, and says how often it was asked.
async fn http2() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let asked = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&asked);
    let answer = service_fn(move |request: Request<Incoming>| {
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        let mut response = Response::new(Full::<Bytes>::from("data"));
        if !request.headers().contains_key(AUTHORIZATION) {
            *response.status_mut() = StatusCode::UNAUTHORIZED;
        } else if first {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        ready(Ok::<_, Infallible>(response))
    });
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let server = http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(socket), answer.clone()));
        }
    });
    (url, asked)
}

#[tokio::test]
async fn over_tonics_channel_it_is_the_whole_stack() {
    let server = start().await;
    let client = client(&server);
    let connector = ConnectionLimitLayer::new(client.limiter().clone()).layer(HttpConnector::new());
    let host = Endpoint::from_shared(server.base_url().to_owned()).expect("an address");
    let again = RetryLayer::new().replay(|_: &tonic::body::Body| Some(tonic::body::Body::empty()));
    let service = ServiceBuilder::new()
        .layer(client.layer().retry(again))
        .service(host.connect_with_connector_lazy(connector));
    let seen = is_the_whole_stack(&server, service, tonic::body::Body::empty).await;
    // One that all data calls share, and perhaps the token's beside it.
    assert!(seen.peak_sockets <= 2, "{seen:?}");
}

#[tokio::test]
async fn over_tonics_channel() {
    let (server, (url, asked)) = (start().await, http2().await);
    let credentials = Credentials::new(server.client_id(), server.client_secret());
    let credentials = credentials.expect("the simulator's are usable");
    let client = Client::builder(server.auth_url(), &url, credentials).loopback_http();
    let client = client.build().expect("loopback is let through");
    let connector = ConnectionLimitLayer::new(client.limiter().clone()).layer(HttpConnector::new());
    let host = Endpoint::from_shared(url.clone()).expect("an address");
    let channel: Channel = host.connect_with_connector_lazy(connector);
    // A body of tonic's is not clonable; that of a message of which the bytes are known can be made again.
    let again = RetryLayer::new().replay(|_: &tonic::body::Body| Some(tonic::body::Body::empty()));
    let service = ServiceBuilder::new()
        .layer(client.layer().retry(again))
        .service(channel);
    let request = Request::get(format!("{url}{PATH}")).body(tonic::body::Body::empty());
    let answer = service.oneshot(request.expect("a request")).await;
    let body = answer.expect("data").into_body().collect().await;
    assert_eq!(body.expect("a whole body").to_bytes(), "data");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert_eq!(client.limiter().snapshot().connections, 1);
}

#[tokio::test]
async fn over_tonics_channel_a_connection_that_comes_too_late_has_its_bound() {
    let (server, (url, asked)) = (start().await, http2().await);
    let credentials = Credentials::new(server.client_id(), server.client_secret());
    let credentials = credentials.expect("the simulator's are usable");
    let client = Client::builder(server.auth_url(), &url, credentials).loopback_http();
    let client = client.build().expect("loopback is let through");
    client.tokens().ready().await.expect("a token");
    let slow = tower::service_fn(async |host: Uri| {
        sleep(Duration::from_millis(500)).await;
        HttpConnector::new().oneshot(host).await
    });
    let host = Endpoint::from_shared(url.clone()).expect("an address");
    let host = host.connect_timeout(Duration::from_millis(300));
    let again = RetryLayer::new().replay(|_: &tonic::body::Body| Some(tonic::body::Body::empty()));
    let service = ServiceBuilder::new()
        .layer(client.layer().retry(again))
        .service(host.connect_with_connector_lazy(slow));
    let request = Request::get(format!("{url}{PATH}")).body(tonic::body::Body::empty());
    let mut request = request.expect("a request");
    let soon = Deadline::after(Duration::from_millis(100));
    request.extensions_mut().insert(soon);
    let error = service.clone().oneshot(request).await.map(drop);
    assert_eq!(error.expect_err("no connection").kind(), Kind::Timeout);
    sleep(Duration::from_millis(1_000)).await;
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn under_tower_https_layers() {
    let server = start().await;
    let client = client(&server);
    let teams = Arc::<Mutex<Vec<_>>>::default();
    let seen = Arc::clone(&teams);
    let connector = ConnectionLimitLayer::new(client.limiter().clone()).layer(HttpConnector::new());
    let http = legacy::Client::builder(Background::new(TokioExecutor::new())).build(connector);
    let service = ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(CatchPanicLayer::new())
        .layer(TimeoutLayer::with_status_code(
            StatusCode::GATEWAY_TIMEOUT,
            Duration::from_secs(3),
        ))
        .layer(SetRequestHeaderLayer::overriding(
            HeaderName::from_static("x-team"),
            HeaderValue::from_static("metro"),
        ))
        // Its timeouts have bodies of their own.
        .map_response(|response: Response<_>| response.map(Body::new))
        .layer(client.layer())
        .map_request(move |request: Request<Full<Bytes>>| {
            assert_ne!(request.uri().path(), "/panic");
            let team = request.headers().get("x-team").cloned();
            seen.lock().expect("no panic under it").push(team);
            request
        })
        .service(http);
    let get = async |path: &str| {
        let request = Request::get(format!("{}{path}", server.base_url()));
        let request = request.body(Full::<Bytes>::default()).expect("a request");
        let answer = service.clone().oneshot(request).await;
        let answer = answer.map_err(|error| error.to_string()).expect(path);
        answer.status()
    };
    assert_eq!(get(PATH).await, StatusCode::OK);
    let metro = Some(HeaderValue::from_static("metro"));
    assert_eq!(*teams.lock().expect("no panic under it"), [metro]);
    assert_eq!(get("/panic").await, StatusCode::INTERNAL_SERVER_ERROR);
    let mut faults = Faults::default();
    faults.before_head = "5s".parse().expect("a delay");
    server.sim().set_faults(faults);
    assert_eq!(get(PATH).await, StatusCode::GATEWAY_TIMEOUT);
    // What it left goes on to its answer, and then holds nothing.
    while server.ledger().summary().complete < 2 {
        sleep(Duration::from_millis(5)).await;
    }
    let nothing_left = timeout(HANGS, client.limiter().idle());
    nothing_left.await.expect("its permits come back");
}

#[tokio::test]
async fn under_tower_https_decompression() {
    let server = start().await;
    let client = client(&server);
    let connector = ConnectionLimitLayer::new(client.limiter().clone()).layer(HttpConnector::new());
    let http = legacy::Client::builder(Background::new(TokioExecutor::new())).build(connector);
    let service = ServiceBuilder::new()
        .layer(DecompressionLayer::new())
        .map_response(|response: Response<_>| {
            assert!(response.headers().contains_key(CONTENT_ENCODING));
            response
        })
        .layer(client.layer())
        .service(http);
    let path = "/v1/history/timetable?bytes=300000";
    // The contract's own word for it ("Data endpoints").
    let coded = Request::get(format!("{}{path}", server.base_url()))
        .header("content-encoding", "br,gzip")
        .body(Full::<Bytes>::default());
    let answer = service
        .oneshot(coded.expect("a request"))
        .await
        .expect("data");
    let decoded = answer.into_body().collect().await;
    let decoded = decoded
        .map_err(|error| error.to_string())
        .expect("a whole body");
    let plain = client.get(path).await.expect("data").bytes().await;
    assert_eq!(decoded.to_bytes(), plain.expect("a whole body"));
    let nothing_left = timeout(HANGS, client.limiter().idle());
    nothing_left.await.expect("its permits come back");
}

/// Passes GETs on, and says by its status what became of them.
async fn proxy(State(client): State<Client>, request: Request<Body>) -> Response<Body> {
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    match client.get(path).await {
        Ok(response) => response.into_http().map(Body::new),
        Err(error) => {
            let status = error.status().unwrap_or(StatusCode::BAD_GATEWAY);
            (status, error.to_string()).into_response()
        }
    }
}

#[tokio::test]
async fn as_a_proxy_in_axum() {
    let server = start().await;
    let app = Router::new().fallback(proxy).with_state(client(&server));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    let browser = legacy::Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let get = |path: &str| {
        browser.get(
            format!("http://{address}{path}")
                .parse()
                .expect("an address"),
        )
    };
    let answer = get(PATH).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    let body = answer.into_body().collect().await.expect("a whole body");
    assert!(body.to_bytes().starts_with(b"{\"name\""));
    assert_eq!(
        get("/no").await.expect("an answer").status(),
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn as_a_layer_of_an_axum_router() {
    let limits = Limits::new(Quota::per_second(NonZeroU32::MIN)).rules(Rules::window());
    let limiter = Limiter::new(limits);
    let limit = RequestLimitLayer::new(limiter.clone()).max_wait(Duration::ZERO);
    let told = |error: limits::Error<Infallible>| {
        ready((StatusCode::SERVICE_UNAVAILABLE, error.to_string()))
    };
    let layers = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(told))
        .layer(limit);
    let app = Router::new().fallback(|| ready("data")).layer(layers);
    let mut seen = Vec::new();
    for _ in 0..2 {
        let answer = app.clone().oneshot(Request::new(Body::empty())).await;
        seen.push(answer.expect("an answer").status());
    }
    assert_eq!(seen, [StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE]);
    assert_eq!(limiter.snapshot().granted, 1);
}
