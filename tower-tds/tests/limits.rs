//! What calls are told that the limits kept back, and that the server never saw.
#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

#[path = "support/server.rs"]
#[expect(dead_code, reason = "the other tests need more of it")]
mod server;

use std::{num::NonZeroU32, time::Duration};

use http::Request;
use server::Server;
use tower::ServiceExt;
use tower_tds::{
    Client, Credentials, Error, Kind, Limits, RequestBody, ResponseBody, layers::errors::RetryLayer,
};

fn client(server: &Server, url: &str, limits: Limits) -> Client {
    let credentials = Credentials::new("id", "s3cr3t").expect("it can be sent");
    Client::builder(&server.url(), url, credentials)
        .loopback_http()
        .limits(limits)
        .retry(RetryLayer::new().attempts(NonZeroU32::MIN))
        .build()
        .expect("loopback is let through")
}

async fn get(client: &Client, url: &str) -> Result<ResponseBody, Error> {
    let request = Request::get(url).body(RequestBody::default());
    let called = client.clone().oneshot(request.expect("a request")).await;
    called.map(http::Response::into_body)
}

#[tokio::test]
async fn a_quota_that_is_used_up_is_told_as_such_also_where_it_is_known_before() {
    for wait in ["7200", "90"] {
        let answer = format!(
            "HTTP/1.1 429 Too Many Requests\r\nretry-after: {wait}\r\ncontent-length: 0\r\n\r\n"
        );
        let server = Server::start(answer.as_bytes()).await;
        let client = client(&server, &server.url(), Limits::default());
        for _ in 0..3 {
            let called = get(&client, &server.url()).await;
            let error = called.map(drop).expect_err("it is used up");
            assert_eq!(error.kind(), Kind::QuotaExhausted);
            let left = error.retry_after().expect("it is known");
            assert!(left > Duration::from_secs(60), "{left:?}");
        }
        assert_eq!(server.seen(), ["POST", "t1"], "it is asked once");
    }
}
