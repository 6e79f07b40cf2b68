//! Error texts of the assembled client: the failure, its address, and the next step.

use http::Request;
use tower::ServiceExt;
use tower_tds::{Client, Credentials, Error, Kind, RequestBody, layers::errors::Sent};

use crate::server::Server;

async fn fails(auth: &str, base: &str, url: &str) -> Error {
    let credentials = Credentials::new("id", "s3cr3t").expect("it can be sent");
    let client = Client::builder(auth, base, credentials).loopback_http();
    let client = client.build().expect("loopback is let through");
    let request = Request::get(url).body(RequestBody::default());
    let called = client.oneshot(request.expect("a request")).await;
    called.map(drop).expect_err("something is wrong")
}

/// A local address without a listener.
async fn nobody() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let address = listener.and_then(|listener| listener.local_addr());
    format!("http://{}", address.expect("a port"))
}

#[tokio::test]
async fn unavailable_token_error_names_endpoint_and_root_cause() {
    let (auth, base) = (nobody().await, nobody().await);
    let error = fails(&auth, &base, &format!("{base}/v1/live/bus")).await;
    assert_eq!(
        (error.kind(), error.sent()),
        (Kind::TokenUnavailable, Sent::Never)
    );
    let line = error.to_string();
    let endpoint = format!("{auth}/auth/realms/ServiceConnect/protocol/openid-connect/token");
    assert!(line.contains(&endpoint), "{line}");
    assert!(line.to_lowercase().contains("refused"), "{line}");
    assert!(
        line.chars().count() <= 300 && !line.contains("s3cr3t"),
        "{line}"
    );
}

#[tokio::test]
async fn foreign_origin_error_names_its_reason() {
    let server = Server::start(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let other = nobody().await;
    let error = fails(
        &server.url(),
        &server.url(),
        &format!("{other}/v1/live/bus"),
    )
    .await;
    let line = error.to_string();
    assert_eq!(error.kind(), Kind::InvalidRequest);
    assert!(line.contains("origin that may not see the token"), "{line}");
    assert!(
        !line.contains("absolute uri") && !line.contains("layer"),
        "{line}"
    );
}

#[tokio::test]
async fn missing_header_401_mentions_a_proxy() {
    let answer =
        b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 29\r\n\r\nno Authorization header found";
    let server = Server::start(answer).await;
    let error = fails(&server.url(), &server.url(), &format!("{}/x", server.url())).await;
    let line = error.to_string();
    assert_eq!(error.kind(), Kind::MissingCredentials);
    assert!(line.contains("no Authorization header found"), "{line}");
    assert!(line.contains("proxy") && !line.contains("layer"), "{line}");
    assert_eq!(server.seen(), ["POST", "t1"]);
}
