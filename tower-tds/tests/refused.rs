//! Tokens that are refused, for a reason and without one: who is asked again, and with what.
#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

#[path = "support/server.rs"]
mod server;

use http::Request;
use server::Server;
use tower::ServiceExt;
use tower_tds::{Client, Credentials, Error, Kind, RequestBody, layers::errors::GiveUp};

fn client(server: &Server) -> Client {
    let credentials = Credentials::new("id", "s3cr3t").expect("it can be sent");
    let builder = Client::builder(&server.url(), &server.url(), credentials);
    let built = builder.loopback_http().build();
    built.expect("loopback is let through")
}

async fn refused(client: &Client, server: &Server) -> Error {
    let request = Request::get(format!("{}/v1/live/bus", server.url()));
    let request = request.body(RequestBody::default()).expect("a request");
    let answered = client.clone().oneshot(request).await;
    answered.map(drop).expect_err("all tokens are refused")
}

fn answer(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 401 Unauthorized\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

#[tokio::test]
async fn a_401_brings_one_new_token_and_one_more_attempt_whether_it_says_why_or_not() {
    for (body, kind) in [
        ("invalid token\n", Kind::InvalidToken),
        ("go away", Kind::Unauthorized),
        ("", Kind::Unauthorized),
    ] {
        let server = Server::start(&answer(body)).await;
        let client = client(&server);
        let error = refused(&client, &server).await;
        assert_eq!((error.kind(), error.attempts()), (kind, 2), "{body}");
        // The next token would be refused within a minute of this one: no call asks for it, and
        // none is made again with the one that is there.
        for _ in 0..3 {
            let error = refused(&client, &server).await;
            assert_eq!((error.kind(), error.attempts()), (kind, 1), "{body}");
            assert_eq!(error.gave_up(), Some(GiveUp::Forbidden), "{body}");
        }
        assert_eq!(
            server.seen(),
            ["POST", "t1", "POST", "t2", "t2", "t2", "t2"],
            "{body}"
        );
    }
}

#[tokio::test]
async fn a_401_that_no_token_can_help_brings_none() {
    for (body, kind, attempts) in [
        ("no Authorization header found", Kind::MissingCredentials, 1),
        ("Missing required realm role", Kind::MissingRole, 1),
        (
            "accessing introspection endpoint failed",
            Kind::Unavailable,
            3,
        ),
    ] {
        let server = Server::start(&answer(body)).await;
        let error = refused(&client(&server), &server).await;
        assert_eq!((error.kind(), error.attempts()), (kind, attempts), "{body}");
        let posts = server.seen().iter().filter(|seen| *seen == "POST").count();
        assert_eq!(posts, 1, "{body}");
    }
}
