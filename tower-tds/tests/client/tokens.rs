//! Token calls between data calls, by what the server saw of both.

use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response};
use tokio::{
    io::AsyncWriteExt,
    net::TcpListener,
    time::{Instant, pause, resume, sleep},
};
use tower::ServiceExt;
use tower_tds::{
    AuthServer, Builder, Client, Credentials, Kind, Limits, Quota, RequestBody, ResponseBody,
    SharedLimits,
    layers::{limits::Rules, token::TokenEndpoint},
};

use crate::client::server::{self, Server};

fn built(builder: Builder) -> Client {
    builder.build().expect("loopback is let through")
}

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("a count is not zero")
}

/// The head of a response whose body is not read.
async fn get(client: &Client, server: &Server) -> Response<ResponseBody> {
    let request = Request::get(format!("{}/hold", server.url()));
    let request = request.body(RequestBody::default()).expect("a request");
    let response = client.clone().oneshot(request).await;
    response.expect("the head of a success")
}

const DOWNLOAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";
const TOKEN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 59\r\n\r\n\
    {\"access_token\":\"t\",\"expires_in\":900,\"token_type\":\"Bearer\"}";
const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// Answers all requests, and keeps their first lines.
async fn issuer() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let document = format!(r#"{{"issuer":"{url}","token_endpoint":"{url}/oauth2/token"}}"#);
    let document = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{document}",
        document.len()
    );
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (list, document) = (Arc::clone(&list), document.clone());
            tokio::spawn(async move {
                while let Some(head) = server::read(&mut stream).await {
                    let line = head.split(" HTTP/").next().expect("a line").to_owned();
                    let answer = if line.starts_with("POST ") {
                        TOKEN
                    } else if line.contains(".well-known") {
                        document.as_bytes()
                    } else {
                        EMPTY
                    };
                    list.lock().expect("nobody panicked").push(line);
                    if stream.write_all(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, seen)
}

#[tokio::test]
async fn tokens_come_from_any_endpoint_or_issuer() {
    let document = "GET /.well-known/openid-configuration";
    let fixed = "POST /auth/realms/ServiceConnect/protocol/openid-connect/token";
    let (url, seen) = issuer().await;
    let any = format!("{url}/my/token?tenant=1").parse().expect("a URI");
    let cases: [(AuthServer, &[&str]); 3] = [
        (url.as_str().into(), &[fixed]),
        (
            TokenEndpoint::new(any).expect("loopback").into(),
            &["POST /my/token?tenant=1"],
        ),
        (
            TokenEndpoint::discover(&url).expect("loopback").into(),
            &[document, "POST /oauth2/token"],
        ),
    ];
    for (auth, token_lines) in cases {
        let credentials = Credentials::new("id", "s3cr3t").expect("it can be sent");
        let client = built(Client::builder(auth, &url, credentials).loopback_http());
        client.get("/data").await.expect("a success");
        let seen = std::mem::take(&mut *seen.lock().expect("nobody panicked"));
        assert_eq!(seen, [token_lines, &["GET /data"]].concat());
    }
    let credentials = || Credentials::new("id", "s3cr3t").expect("it can be sent");
    let plain = TokenEndpoint::discover(&url).expect("loopback");
    let error = Client::builder(plain, "https://data.example.org", credentials()).build();
    assert!(error.is_err(), "plain http needs `loopback_http`");
    let error = Client::builder("no URL", "https://data.example.org", credentials()).build();
    assert!(error.is_err());
}

/// gRPC refuses with HTTP status 200, and its own status in the head.
#[tokio::test]
async fn token_that_grpc_refuses_is_replaced_once_and_the_call_resent() {
    let refusal = b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ngrpc-status: 16\r\n\
        grpc-message: JWT%20expired\r\ncontent-length: 0\r\n\r\n";
    let server = Server::start(refusal).await;
    let client = built(server.builder());
    let error = client.get("/hold").await.map(drop).expect_err("a refusal");
    assert_eq!(error.kind(), Kind::InvalidToken);
    assert_eq!(error.message(), Some("JWT expired"));
    // The last attempt waits for a clock that may be behind, and both tokens are tried in turn.
    assert_eq!(server.seen(), ["POST", "t1", "POST", "t2", "t1"]);
}

#[tokio::test]
async fn a_token_call_does_not_wait_for_downloads() {
    let server = Server::start(DOWNLOAD).await;
    let limits = Limits::default().connections(count(4)).in_flight(count(3));
    let limits = SharedLimits::from(limits);
    let client = built(server.builder().limits(&limits));
    let mut downloads = Vec::new();
    while downloads.len() < 3 {
        downloads.push(get(&client, &server).await);
    }
    let beside = built(server.builder().limits(&limits));
    beside.tokens().ready().await.expect("a token");
    assert_eq!(server.seen(), ["POST", "t1", "t1", "t1", "POST"]);
    drop(downloads);
}

#[tokio::test]
async fn dead_token_socket_does_not_block_the_next_token_request() {
    let endpoint = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", endpoint.local_addr().expect("an address"));
    let credentials = Credentials::new("id", "s3cr3t").expect("it can be sent");
    let client = built(Client::builder(&url, &url, credentials).loopback_http());
    let tokens = client.tokens().clone();
    let call = tokio::spawn(async move { tokens.ready().await });
    let (mut dead, _) = endpoint.accept().await.expect("a socket");
    server::read(&mut dead).await.expect("a token call");
    pause();
    let error = call.await.expect("no panic").expect_err("no answer");
    sleep(error.retry_after().expect("a backoff")).await;
    resume();
    // The first socket is never closed by its server.
    tokio::spawn(async move {
        let (mut socket, _) = endpoint.accept().await.expect("a socket");
        server::read(&mut socket).await.expect("a token call");
        let written = socket.write_all(TOKEN).await;
        written.expect("the client reads");
    });
    client.tokens().ready().await.expect("a token");
    drop(dead);
}

#[tokio::test]
async fn token_request_waits_most_of_a_minute_for_its_permit() {
    let server = Server::start(EMPTY).await;
    let five_a_minute =
        Limits::new(Quota::new(count(5), Duration::from_secs(60)).expect("a minute"))
            .rules(Rules::window());
    let limits = SharedLimits::from(five_a_minute);
    let client = built(server.builder().limits(&limits));
    for _ in 0..4 {
        get(&client, &server).await;
    }
    let beside = built(server.builder().limits(&limits));
    // From here on only the quota takes time.
    pause();
    let start = Instant::now();
    beside.tokens().ready().await.expect("a token");
    assert!(start.elapsed() > Duration::from_secs(50));
    assert_eq!(server.seen(), ["POST", "t1", "t1", "t1", "t1", "POST"]);
}

/// A firewall in front of an identity server may refuse requests without one.
#[tokio::test]
async fn token_requests_and_discovery_carry_the_user_agent_of_data_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let heads = Arc::<Mutex<Vec<String>>>::default();
    let (log, issuer) = (Arc::clone(&heads), url.clone());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (log, issuer) = (Arc::clone(&log), issuer.clone());
            tokio::spawn(async move {
                while let Some(head) = server::read(&mut stream).await {
                    let text = if head.starts_with("POST") {
                        r#"{"access_token":"t","expires_in":86400,"token_type":"Bearer"}"#
                            .to_owned()
                    } else {
                        format!(r#"{{"issuer":"{issuer}","token_endpoint":"{issuer}/token"}}"#)
                    };
                    log.lock().expect("no panic under it").push(head);
                    let head = "HTTP/1.1 200 OK\r\ncontent-length:";
                    let answer = format!("{head} {}\r\n\r\n{text}", text.len());
                    stream.write_all(answer.as_bytes()).await.expect("it reads");
                }
            });
        }
    });
    let credentials = Credentials::new("id", "s3cr3t").expect("it can be sent");
    let issuer = TokenEndpoint::discover(&url).expect("loopback");
    let client = built(Client::builder(issuer, &url, credentials).loopback_http());
    client.get("/v1/live/bus").await.expect("an answer");
    let heads = heads.lock().expect("no panic under it");
    let agents: Vec<_> = heads
        .iter()
        .filter_map(|head| {
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            let mut named = lines.filter(|(name, _)| name.eq_ignore_ascii_case("user-agent"));
            named.next().map(|(_, agent)| agent.to_owned())
        })
        .collect();
    assert_eq!(agents.len(), 3, "discovery, token and data: {heads:?}");
    assert!(agents.iter().all(|agent| *agent == agents[0]), "{agents:?}");
}
