//! Token calls between data calls, by what the server saw of both.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, pause};
use tower_tds::{
    AuthServer, Client, Kind, Limiter, Limits, Quota,
    layers::{limits::Rules, token::TokenEndpoint},
};

use crate::client::{
    raw::{Raw, answer, say, values},
    world::{Built as _, count, secret},
};

#[tokio::test]
async fn tokens_come_from_any_endpoint_or_issuer_and_each_request_has_one_host_and_agent() {
    let document = "GET /.well-known/openid-configuration";
    let fixed = "POST /auth/realms/ServiceConnect/protocol/openid-connect/token";
    for (kind, lines) in [
        ("keycloak", &[fixed][..]),
        ("fixed", &["POST /my/token?tenant=1"]),
        ("discovered", &[document, "POST /oauth2/token"]),
    ] {
        let raw = Raw::start(|asked| {
            let url = format!("http://{}", values(asked.head, "host")[0]);
            let document = format!(r#"{{"issuer":"{url}","token_endpoint":"{url}/oauth2/token"}}"#);
            vec![say(answer("200 OK", document))]
        });
        let raw = raw.await;
        let any = format!("{}/my/token?tenant=1", raw.url);
        let any = TokenEndpoint::new(any.parse().expect("a URI"));
        let auth: AuthServer = match kind {
            "keycloak" => raw.url.as_str().into(),
            "fixed" => any.expect("loopback").into(),
            _ => TokenEndpoint::discover(&raw.url).expect("loopback").into(),
        };
        let client = Client::builder(auth, &raw.url, secret());
        let client = client.built();
        client.get("/data").await.expect("a success");
        let host = raw.url.trim_start_matches("http://");
        let named = client.get(format!("{}/data", raw.url));
        let named = named.header("host", host).header("user-agent", "mine");
        named.await.expect("a success");
        let seen = raw.all();
        let first: Vec<_> = seen
            .iter()
            .filter_map(|head| head.split(" HTTP/").next())
            .collect();
        assert_eq!(first, [lines, &["GET /data"; 2]].concat(), "{kind}");
        // A firewall in front of an identity server may refuse requests without one.
        let own = concat!("tower-tds/", env!("CARGO_PKG_VERSION"));
        for (n, head) in (1..).zip(&seen) {
            let agent = if n == seen.len() { "mine" } else { own };
            assert_eq!(values(head, "user-agent"), [agent], "{kind}");
            assert_eq!(values(head, "host"), [host], "{kind}");
        }
    }
}

/// The refusals of a service, the kind of each, and the requests that it causes: `POST` for each token.
const REFUSALS: [(&str, &str, Kind, &str); 7] = [
    // The last attempt waits for a clock that may be behind, and both tokens are tried in turn.
    ("401 No", "invalid token\n", Kind::InvalidToken, ANOTHER),
    ("401 No", "go away", Kind::InvalidToken, ANOTHER),
    ("401 No", "", Kind::InvalidToken, ANOTHER),
    // gRPC refuses with status 200, and its own status in the head.
    (GRPC, "", Kind::InvalidToken, ANOTHER),
    // Another token would not help.
    (
        "401 No",
        "no Authorization header found",
        Kind::MissingCredentials,
        "POST t1",
    ),
    (
        "401 No",
        "Missing required realm role",
        Kind::MissingRole,
        "POST t1",
    ),
    // Any other 401 may be about the token, and this one is retried as an outage.
    (
        "401 No",
        "accessing introspection endpoint failed",
        Kind::Unavailable,
        ANOTHER,
    ),
];

const ANOTHER: &str = "POST t1 POST t2 t1";

const GRPC: &str =
    "200 OK\r\ncontent-type: application/grpc\r\ngrpc-status: 16\r\ngrpc-message: JWT%20expired";

#[tokio::test]
async fn refused_token_is_replaced_once_and_the_call_resent_unless_it_is_about_something_else() {
    let refused = REFUSALS.map(|(head, body, kind, seen)| async move {
        let raw = Raw::saying(answer(head, body)).await;
        let error = raw.client().get("/hold").await.map(drop);
        let error = error.expect_err("a refusal");
        assert_eq!(error.kind(), kind, "{body}");
        let is_told = error.message() == Some("JWT expired");
        assert_eq!(is_told, head == GRPC, "{error}");
        assert!(!error.to_string().contains("forbidden"), "{error}");
        assert_eq!(raw.seen().join(" "), seen, "{head} {body}");
    });
    join_all(refused).await;
}

/// A client that has made so many calls, whose bodies are not read, and another one beside it.
async fn beside(raw: &Raw, limits: Limits, calls: usize) -> (Client, Vec<tower_tds::Response>) {
    let limiter = Limiter::new(limits);
    let client = raw.builder().limits(limiter.clone()).built();
    let mut held = Vec::new();
    while held.len() < calls {
        held.push(client.get("/hold").await.expect("the head of a success"));
    }
    (raw.builder().limits(limiter).built(), held)
}

#[tokio::test]
async fn a_token_call_does_not_wait_for_downloads() {
    let raw = Raw::saying("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").await;
    let limits = Limits::default().connections(count(4)).in_flight(count(3));
    let (beside, downloads) = beside(&raw, limits, 3).await;
    beside.tokens().ready().await.expect("a token");
    assert_eq!(raw.seen(), ["POST", "t1", "t1", "t1", "POST"]);
    drop(downloads);
}

#[tokio::test]
async fn token_request_waits_most_of_a_minute_for_its_permit() {
    let raw = Raw::saying(answer("200 OK", "")).await;
    let limits = Limits::new(Quota::new(count(5), Duration::from_secs(60)).expect("a minute"))
        .rules(Rules::window());
    let (beside, _) = beside(&raw, limits, 4).await;
    // From here on only the quota takes time.
    pause();
    let start = Instant::now();
    beside.tokens().ready().await.expect("a token");
    assert!(start.elapsed() > Duration::from_secs(50));
    assert_eq!(raw.seen(), ["POST", "t1", "t1", "t1", "t1", "POST"]);
}
