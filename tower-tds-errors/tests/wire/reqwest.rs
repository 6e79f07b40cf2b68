//! The errors of reqwest, whose types this crate does not know.

use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, ClientBuilder};
use tower::BoxError;
use tower_tds_errors::{Error, Kind, Sent};

use crate::server::{Act, NOBODY, Server};

struct Nobody;

impl Resolve for Nobody {
    fn resolve(&self, _: Name) -> Resolving {
        Box::pin(std::future::ready(Err::<Addrs, BoxError>("nobody".into())))
    }
}

fn builder() -> ClientBuilder {
    Client::builder().no_proxy()
}

/// The error of the call or of the body.
async fn failed(client: ClientBuilder, uri: &str) -> Error {
    let client = client.build().unwrap();
    let fetched = async { client.get(uri).send().await?.bytes().await };
    let error = Error::from(BoxError::from(fetched.await.unwrap_err()));
    let shown = format!("{error} {error:?} {error:#?}");
    assert!(!shown.contains("CANARY"), "{shown}");
    error
}

async fn fails(act: Act) -> Error {
    let server = Server::start(act).await;
    failed(builder(), &format!("{}?key=CANARY-42", server.uri())).await
}

#[tokio::test]
async fn reqwest_errors_show_whether_the_request_was_sent() {
    let refused = NOBODY.to_owned();
    let nobody = builder().dns_resolver(Nobody);
    for error in [
        failed(builder(), &refused).await,
        failed(nobody, "http://api.example/").await,
    ] {
        assert_eq!((error.kind(), error.sent()), (Kind::Connect, Sent::Never));
    }
    for (act, kind) in [
        (Act::WriteAndReset(Vec::new()), Kind::Reset),
        (Act::WriteAndClose(Vec::new()), Kind::Reset),
        (Act::Write("junk\r\n\r\n".into()), Kind::Malformed),
    ] {
        let error = fails(act).await;
        assert_eq!((error.kind(), error.sent()), (kind, Sent::Unknown));
    }
}

/// The outer errors of reqwest print the address, with its query, and no cause.
#[tokio::test]
async fn the_deepest_cause_speaks() {
    let refused = failed(builder(), &format!("{NOBODY}?key=CANARY")).await;
    assert!(
        refused.to_string().contains("Connection refused"),
        "{refused}"
    );
    let nobody = builder().dns_resolver(Nobody);
    let unknown = failed(nobody, "http://api.example/?key=CANARY").await;
    assert!(
        unknown
            .to_string()
            .starts_with("connection failed: nobody;"),
        "{unknown}"
    );
}

#[tokio::test(start_paused = true)]
async fn reqwest_timeout_is_a_timeout_and_may_have_been_sent() {
    let silent = Server::start(Act::WriteAndHold(Vec::new())).await;
    let limit = Duration::from_secs(1);
    let head = failed(builder().timeout(limit), &silent.uri()).await;
    assert_eq!((head.kind(), head.sent()), (Kind::Timeout, Sent::Unknown));
}
