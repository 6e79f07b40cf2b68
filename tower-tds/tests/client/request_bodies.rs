//! The bodies of requests, as a server reads them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use axum::{Router, extract::State, response::IntoResponse};
use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{Empty, Full};
use tds_sim::{Config, Server};
use tokio::net::TcpListener;
use tower_tds::{
    Client, Kind, RequestBody,
    layers::errors::{GiveUp, Repeat},
};

use crate::client::sim;

/// The bodies that came for each path.
type Came = Arc<Mutex<HashMap<String, Vec<Bytes>>>>;

/// Returns 503 to the first request of each path, and accepts the second.
async fn busy_once(State(came): State<Came>, path: Uri, body: Bytes) -> impl IntoResponse {
    let mut came = came.lock().expect("no panic under it");
    let bodies = came.entry(path.path().to_owned()).or_default();
    bodies.push(body);
    if bodies.len() == 1 {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    }
}

async fn service() -> (Server, Client, Came) {
    let server = sim::start(Config::default()).await;
    let came = Came::default();
    let app = Router::new()
        .fallback(busy_once)
        .with_state(Arc::clone(&came));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let client = sim::builder_at(&server, &url).build();
    (server, client.expect("loopback is let through"), came)
}

#[tokio::test]
async fn buffered_body_is_replayed_unchanged() {
    let (_server, client, came) = service().await;
    let none = RequestBody::stream(Empty::<Bytes>::new());
    let bodies: [(&str, RequestBody, &str); 6] = [
        ("/none", none, ""),
        ("/unit", ().into(), ""),
        ("/str", "bytes".into(), "bytes"),
        ("/string", String::from("bytes").into(), "bytes"),
        ("/bytes", Bytes::from_static(b"bytes").into(), "bytes"),
        ("/vec", b"bytes".to_vec().into(), "bytes"),
    ];
    for (path, body, bytes) in bodies {
        let request = Request::put(path).body(body).expect("a request");
        let taken = client.request(request).await.expect(path);
        assert_eq!(taken.status(), StatusCode::OK);
        let came = came.lock().expect("no panic under it");
        assert_eq!(came.get(path), Some(&vec![Bytes::from(bytes); 2]), "{path}");
    }
}

#[tokio::test]
async fn streamed_body_is_sent_once_and_not_replayed() {
    let (_server, client, came) = service().await;
    let once = RequestBody::stream(Full::<Bytes>::from("once"));
    let request = Request::put("/stream").body(once).expect("a request");
    let error = client.request(request).await.expect_err("it is busy");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_eq!(error.gave_up(), Some(GiveUp::NotReplayable));
    assert!(format!("{error:#}").contains("body"), "{error:#}");
    let came = came.lock().expect("no panic under it");
    assert_eq!(came.get("/stream"), Some(&vec![Bytes::from("once")]));
}

#[tokio::test]
async fn request_with_repeat_never_is_sent_once() {
    let (_server, client, came) = service().await;
    let mut request = Request::get("/once").body(()).expect("a request");
    request.extensions_mut().insert(Repeat::Never);
    let error = client.request(request).await.expect_err("it is busy");
    assert_eq!(error.gave_up(), Some(GiveUp::Forbidden));
    let came = came.lock().expect("no panic under it");
    assert_eq!(came.get("/once").map(Vec::len), Some(1));
}

#[tokio::test]
async fn refused_post_is_sent_again_with_another_token_unless_its_caller_forbids() {
    for (said, sends, kind, stop) in [
        (
            Some(Repeat::Never),
            1,
            Kind::InvalidToken,
            GiveUp::Forbidden,
        ),
        (None, 2, Kind::Rejected, GiveUp::Fatal),
    ] {
        let server = Server::start(Config::default()).await.expect("free ports");
        let client = sim::client(&server);
        client.tokens().ready().await.expect("a token");
        server.sim().revoke_all();
        let mut post = Request::post("/v1/live/bus").body("{}").expect("a request");
        if let Some(repeat) = said {
            post.extensions_mut().insert(repeat);
        }
        let error = client
            .request(post)
            .await
            .expect_err("the service has no POST");
        assert_eq!(server.ledger().summary().data_calls, sends, "{error}");
        assert_eq!(
            (error.kind(), error.gave_up()),
            (kind, Some(stop)),
            "{error}"
        );
    }
}
