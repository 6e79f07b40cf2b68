//! The framing of requests, as a server reads their heads: by the body, whatever the caller set.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use tokio::{io::AsyncWriteExt, net::TcpListener};
use tower::ServiceExt;
use tower_tds::{Client, Kind, RequestBody};

use crate::client::{server::read, sim};

type Heads = Arc<Mutex<Vec<String>>>;

/// A service that notes the data calls it reads, with their bodies, and a client of it.
async fn service() -> (tds_sim::Server, Client, Heads) {
    let heads = Heads::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let log = Arc::clone(&heads);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let log = Arc::clone(&log);
            tokio::spawn(async move {
                while let Some(head) = read(&mut stream).await {
                    if !values(&head, "transfer-encoding").is_empty() {
                        // The chunks end as a head does.
                        read(&mut stream).await.expect("they come");
                    }
                    log.lock().expect("no panic under it").push(head);
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                    if stream.write_all(answer).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    let server = sim::start(tds_sim::Config::default()).await;
    let client = sim::builder_at(&server, &url).build();
    (server, client.expect("loopback is let through"), heads)
}

fn streamed(chunks: &'static [&'static str]) -> RequestBody {
    let frames = chunks
        .iter()
        .map(|chunk| Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(chunk.as_bytes()))));
    RequestBody::stream(StreamBody::new(stream::iter(frames)))
}

/// The values of a header in the head of a request.
fn values<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let named = lines.filter(|(of, _)| of.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value).collect()
}

#[tokio::test]
async fn announced_length_is_that_of_the_body_or_nothing_is_sent() {
    let (_server, client, heads) = service().await;
    let wrong = [
        (Method::GET, "24", RequestBody::default()),
        (Method::GET, "-1", RequestBody::default()),
        (Method::PUT, "4", RequestBody::from("abc")),
        (Method::PUT, "2", RequestBody::from("abc")),
        (Method::PUT, "3, 3", RequestBody::from("abc")),
        (
            Method::POST,
            "0",
            RequestBody::from("GET /evil HTTP/1.1\r\n\r\n"),
        ),
        (Method::PUT, "three", streamed(&["abc"])),
    ];
    for (method, length, body) in wrong {
        let request = Request::builder()
            .method(method)
            .uri("/v1/x")
            .header("content-length", length);
        let error = client
            .request(request.body(body).expect("a request"))
            .await
            .expect_err(length);
        assert_eq!(error.kind(), Kind::InvalidRequest, "{error}");
        assert!(error.to_string().contains("Content-Length"), "{error}");
    }
    let twice = Request::put("/v1/x")
        .header("content-length", "3")
        .header("content-length", "3");
    let twice = twice.body(RequestBody::from("abc")).expect("a request");
    client.request(twice).await.expect_err("two lengths");
    assert!(heads.lock().expect("no panic under it").is_empty());

    let right = [
        (Method::GET, "0", RequestBody::default(), None),
        (Method::PUT, "3", RequestBody::from("abc"), Some("3")),
        (
            Method::PUT,
            "3",
            RequestBody::stream(Full::<Bytes>::from("abc")),
            Some("3"),
        ),
        (Method::PUT, "6", streamed(&["abc", "def"]), Some("6")),
    ];
    for (method, length, body, sent) in right {
        let request = Request::builder()
            .method(method)
            .uri("/v1/x")
            .header("content-length", length);
        client
            .request(request.body(body).expect("a request"))
            .await
            .expect("it is sent");
        let head = heads
            .lock()
            .expect("no panic under it")
            .pop()
            .expect("it came");
        assert_eq!(values(&head, "content-length"), Vec::from_iter(sent));
        assert!(values(&head, "transfer-encoding").is_empty(), "{head}");
    }
}

#[tokio::test]
async fn stream_of_another_length_never_becomes_the_next_request() {
    for chunks in [
        &["abc"][..],
        &["abc", "defGET /evil HTTP/1.1\r\nhost: d\r\n\r\n"],
    ] {
        let (_server, client, heads) = service().await;
        let request = Request::put("/v1/x").header("content-length", "6");
        let request = request.body(streamed(chunks)).expect("a request");
        let ended = client.request(request).await;
        assert!(ended.is_err() || chunks.len() == 2);
        client.get("/v1/next").await.expect("another connection");
        let heads = heads.lock().expect("no panic under it").clone();
        let last = heads.last().expect("the next call");
        assert!(last.starts_with("GET /v1/next HTTP/1.1\r\n"), "{heads:?}");
        assert!(
            heads.iter().all(|head| !head.starts_with("GET /evil")),
            "{heads:?}"
        );
    }
}

#[tokio::test]
async fn headers_of_the_callers_connection_are_not_passed_on() {
    let (_server, client, heads) = service().await;
    for body in [RequestBody::default(), "abc".into(), streamed(&["abc"])] {
        let request = Request::put("/v1/x")
            .header("connection", "upgrade, x-hop")
            .header("keep-alive", "timeout=5")
            .header("te", "trailers")
            .header("transfer-encoding", "gzip, chunked")
            .header("upgrade", "websocket")
            .header("x-hop", "1")
            .header("x-stays", "1")
            .body(body)
            .expect("a request");
        client.request(request).await.expect("it is sent");
        let head = heads
            .lock()
            .expect("no panic under it")
            .pop()
            .expect("it came");
        for gone in ["connection", "keep-alive", "te", "upgrade", "x-hop"] {
            assert!(values(&head, gone).is_empty(), "{gone}: {head}");
        }
        assert!(
            values(&head, "transfer-encoding")
                .iter()
                .all(|coding| *coding == "chunked"),
            "{head}"
        );
        assert_eq!(values(&head, "x-stays"), ["1"]);
    }
}

#[tokio::test]
async fn target_beyond_ascii_arrives_encoded() {
    let (_server, client, heads) = service().await;
    let call = client
        .get("/v1/stops/Zürich")
        .query("$filter", "name eq 'Café & Bar'");
    call.query("$top", 5).await.expect("it is sent");
    let uri = "/v1/stöps".parse().expect("http lets it through");
    let mut request = Request::new(());
    *request.uri_mut() = uri;
    client.request(request).await.expect("it is sent");
    let heads = heads.lock().expect("no panic under it").clone();
    let lines: Vec<_> = heads
        .iter()
        .filter_map(|head| head.lines().next())
        .collect();
    assert_eq!(
        lines,
        [
            "GET /v1/stops/Z%C3%BCrich?$filter=name%20eq%20'Caf%C3%A9%20%26%20Bar'&$top=5 HTTP/1.1",
            "GET /v1/st%C3%B6ps HTTP/1.1",
        ]
    );
}

#[tokio::test]
async fn client_is_a_service_of_each_body_that_converts() {
    let (_server, client, heads) = service().await;
    async fn call<B: Into<RequestBody>>(client: &Client, body: B) {
        let request = Request::put("/v1/x").body(body).expect("a request");
        let response = client.clone().oneshot(request).await.expect("it is sent");
        assert_eq!(response.status(), 200);
    }
    call(&client, ()).await;
    call(&client, "abc").await;
    call(&client, Bytes::from("abc")).await;
    call(&client, Full::<Bytes>::from("abc")).await;
    call(&client, http_body_util::Empty::<Bytes>::new()).await;
    call(&client, streamed(&["abc"])).await;
    assert_eq!(heads.lock().expect("no panic under it").len(), 6);
    let response = client.get("/v1/x").await.expect("it is sent");
    assert_eq!(response.content_length(), Some(2));

    fn shared<T: Send + Sync>(_: &T) {}
    shared(&streamed(&["abc"]));
    shared(&client.clone().oneshot(Request::new(())));
}
