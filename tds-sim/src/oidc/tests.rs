//! The table of refusals measured at Keycloak 26.5.0, row by row, and what is granted.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{Config, Faults, Sim};

const TOKEN: &str = "/auth/realms/ServiceConnect/protocol/openid-connect/token";
const FORM: &str = "application/x-www-form-urlencoded";

struct Got {
    status: u16,
    headers: HeaderMap,
    text: String,
}

async fn send(sim: &Sim, request: Request<String>) -> Got {
    let (head, body) = sim.clone().oneshot(request).await.unwrap().into_parts();
    let text = body.collect().await.unwrap().to_bytes();
    Got {
        status: head.status.as_u16(),
        headers: head.headers,
        text: String::from_utf8(text.to_vec()).unwrap(),
    }
}

async fn post(sim: &Sim, path: &str, form: &str) -> Got {
    let request = Request::post(path)
        .header("content-type", FORM)
        .body(form.to_owned());
    send(sim, request.unwrap()).await
}

async fn basic(sim: &Sim, pair: &str, form: &str) -> Got {
    let request = Request::post(TOKEN)
        .header("content-type", FORM)
        .header(
            "authorization",
            format!("Basic {}", BASE64_STANDARD.encode(pair)),
        )
        .body(form.to_owned());
    send(sim, request.unwrap()).await
}

fn credentials(sim: &Sim) -> String {
    format!(
        "client_id={}&client_secret={}",
        sim.client_id(),
        sim.client_secret()
    )
}

fn full(sim: &Sim) -> String {
    format!("grant_type=client_credentials&{}", credentials(sim))
}

#[track_caller]
fn assert_refused(row: &str, got: &Got, status: u16, error: &str, description: &str) {
    let body: Value = serde_json::from_str(&got.text).unwrap();
    let expected = json!({"error": error, "error_description": description});
    assert_eq!((got.status, body), (status, expected), "{row}");
    assert_eq!(got.headers["cache-control"], "no-store", "{row}");
    assert!(!got.headers.contains_key("www-authenticate"), "{row}");
}

const BAD: &str = "Invalid client or Invalid client credentials";

#[tokio::test(start_paused = true)]
async fn token_refusals_have_the_texts_of_keycloak() {
    let sim = Sim::new(Config::default());
    let id = sim.client_id();
    let good = credentials(&sim);
    let other = sim.add_key("demo").unwrap();
    let other = format!(
        "client_id={}&client_secret={}",
        other.client_id, other.client_secret
    );
    let grant = "grant_type=client_credentials";

    let rows = [
        (
            "wrong secret",
            format!("{grant}&client_id={id}&client_secret=no"),
            401,
            "unauthorized_client",
            BAD,
        ),
        (
            "no secret",
            format!("{grant}&client_id={id}"),
            401,
            "unauthorized_client",
            BAD,
        ),
        (
            "unknown client",
            format!("{grant}&client_id=no&client_secret=no"),
            401,
            "invalid_client",
            BAD,
        ),
        ("no client_id", grant.to_owned(), 401, "invalid_client", BAD),
        (
            "no grant_type",
            good.clone(),
            400,
            "invalid_request",
            "Missing form parameter: grant_type",
        ),
        (
            "unknown grant_type",
            format!("grant_type=no&{good}"),
            400,
            "unsupported_grant_type",
            "Unsupported grant_type",
        ),
        (
            "password grant",
            format!("grant_type=password&username=a&password=b&{good}"),
            400,
            "unauthorized_client",
            "Client not allowed for direct access grants",
        ),
        (
            "a field twice",
            format!("{grant}&{good}&scope=email&scope=email"),
            400,
            "invalid_request",
            "duplicated parameter",
        ),
        (
            "the same secret twice",
            format!("{grant}&{good}&client_secret=x"),
            400,
            "invalid_request",
            "duplicated parameter",
        ),
        (
            "unknown scope",
            format!("{grant}&{good}&scope=nope"),
            400,
            "invalid_scope",
            "Invalid scopes: nope",
        ),
    ];
    for (row, form, status, error, description) in &rows {
        let got = post(&sim, TOKEN, form).await;
        assert_refused(row, &got, *status, error, description);
    }

    let client = other.split(['=', '&']).nth(1).unwrap();
    let form = format!("{grant}&{other}");
    sim.disable_key(client).unwrap();
    assert_refused(
        "disabled client",
        &post(&sim, TOKEN, &form).await,
        401,
        "invalid_client",
        BAD,
    );
    sim.rotate_secret(id).unwrap();
    let got = post(&sim, TOKEN, &full(&sim)).await;
    assert_refused("rotated secret", &got, 401, "unauthorized_client", BAD);
}

#[tokio::test(start_paused = true)]
async fn token_endpoint_reads_only_form_bodies() {
    let sim = Sim::new(Config::default());
    let with = |kind: &str, body: String| {
        Request::post(TOKEN)
            .header("content-type", kind)
            .body(body)
            .unwrap()
    };
    let got = send(&sim, with("multipart/form-data; boundary=x", String::new())).await;
    assert_refused("multipart body", &got, 401, "invalid_client", BAD);
    let got = send(
        &sim,
        with("application/json", r#"{"grant_type":"x"}"#.to_owned()),
    )
    .await;
    let missing = "Missing form parameter: grant_type";
    assert_refused("JSON body", &got, 400, "invalid_request", missing);
    let got = send(
        &sim,
        with(
            "application/x-www-form-urlencoded; charset=utf-8",
            full(&sim),
        ),
    )
    .await;
    assert_eq!(got.status, 200);
}

#[tokio::test(start_paused = true)]
async fn basic_credentials_are_form_decoded() {
    let sim = Sim::new(Config::default());
    let (id, secret) = (sim.client_id(), sim.client_secret());
    let grant = "grant_type=client_credentials";
    let encoded = format!("{}:{secret}", id.replace('-', "%2D"));

    assert_eq!(
        basic(&sim, &format!("{id}:{secret}"), grant).await.status,
        200
    );
    assert_eq!(basic(&sim, &encoded, grant).await.status, 200);
    assert_eq!(
        basic(&sim, &encoded, &full(&sim)).await.status,
        200,
        "also with the fields"
    );
    let unexpected = "Unexpected error when authenticating client";
    let got = basic(&sim, &format!("{id}:50%"), grant).await;
    assert_refused(
        "raw percent sign",
        &got,
        400,
        "unauthorized_client",
        unexpected,
    );
    for wrong in ["wrong", "a/b", "ü", "a&b"] {
        let got = basic(&sim, &format!("{id}:{wrong}"), grant).await;
        assert_refused(wrong, &got, 401, "unauthorized_client", BAD);
    }
    let got = basic(&sim, "no colon", grant).await;
    assert_refused("no pair", &got, 401, "invalid_client", BAD);
}

#[tokio::test(start_paused = true)]
async fn the_client_of_the_form_overrides_the_basic_header() {
    let sim = Sim::new(Config::default());
    let (id, secret) = (sim.client_id(), sim.client_secret());
    let grant = "grant_type=client_credentials";
    let right = format!("{id}:{secret}");
    let got = basic(&sim, &format!("{id}:wrong"), &full(&sim)).await;
    assert_eq!(got.status, 200);
    let got = basic(&sim, &right, &format!("{grant}&client_secret=wrong")).await;
    assert_refused("secret", &got, 401, "unauthorized_client", BAD);
    let got = basic(&sim, &right, &format!("{grant}&client_id=other")).await;
    assert_refused("id", &got, 401, "invalid_client", BAD);
}

#[tokio::test(start_paused = true)]
async fn wrong_paths_and_methods_have_their_own_errors() {
    let sim = Sim::new(Config::default());
    let with = |method: Method, path: &str| {
        Request::builder()
            .method(method)
            .uri(path)
            .body(String::new())
            .unwrap()
    };
    let got = send(&sim, with(Method::GET, TOKEN)).await;
    assert_eq!(
        (got.status, &*got.text),
        (405, r#"{"error":"HTTP 405 Method Not Allowed"}"#)
    );

    let other = TOKEN.replace("ServiceConnect", "other");
    let got = send(&sim, with(Method::POST, &other)).await;
    assert_eq!(
        (got.status, &*got.text),
        (404, r#"{"error":"Realm does not exist"}"#)
    );

    let outside = TOKEN.strip_prefix("/auth").unwrap();
    let got = send(&sim, with(Method::POST, outside)).await;
    assert_eq!((got.status, got.text.len()), (404, 53));
    assert!(
        got.headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/html")
    );
}

#[tokio::test(start_paused = true)]
async fn token_response_has_the_fields_of_keycloak() {
    let config = Config {
        expires_in: 300,
        ..Config::default()
    };
    let sim = Sim::new(config);
    for path in [TOKEN.to_owned(), format!("{TOKEN}/")] {
        let got = post(&sim, &path, &full(&sim)).await;
        assert_eq!(got.status, 200);
        assert_eq!(got.headers["cache-control"], "no-store");
        assert_eq!(got.headers["pragma"], "no-cache");
        let mut reply: Value = serde_json::from_str(&got.text).unwrap();
        let token = reply
            .as_object_mut()
            .unwrap()
            .remove("access_token")
            .unwrap();
        assert_eq!(token.as_str().unwrap().split('.').count(), 3);
        let rest = json!({
            "expires_in": 300, "refresh_expires_in": 0, "token_type": "Bearer",
            "not-before-policy": 0, "scope": "profile email",
        });
        assert_eq!(reply, rest);
    }
    let asked = format!("{}&scope=openid%20email", full(&sim));
    let reply: Value = serde_json::from_str(&post(&sim, TOKEN, &asked).await.text).unwrap();
    assert_eq!(reply["scope"], "openid profile email");
    sim.set_expires_in(7);
    let reply: Value = serde_json::from_str(&post(&sim, TOKEN, &asked).await.text).unwrap();
    assert_eq!(reply["expires_in"], 7);
}

#[tokio::test(start_paused = true)]
async fn token_endpoint_faults_are_played() {
    let sim = Sim::new(Config::default());
    let plays = |fault: &str| {
        let mut faults = Faults::default();
        faults.token.push(fault.parse().unwrap());
        sim.set_faults(faults);
    };
    plays("503");
    assert_eq!(post(&sim, TOKEN, &full(&sim)).await.status, 503);
    plays("html");
    let got = post(&sim, TOKEN, &full(&sim)).await;
    assert!(got.status == 200 && got.text.starts_with("<!doctype html>"));
    plays("slow:30s");
    let before = tokio::time::Instant::now();
    assert_eq!(post(&sim, TOKEN, &full(&sim)).await.status, 200);
    assert_eq!(before.elapsed(), Duration::from_secs(30));
    plays("down@every:2");
    let request = || {
        Request::post(TOKEN)
            .header("content-type", FORM)
            .body(full(&sim))
            .unwrap()
    };
    assert_eq!(sim.clone().oneshot(request()).await.unwrap().status(), 200);
    assert!(sim.clone().oneshot(request()).await.unwrap_err().kind == crate::error::Kind::Closed);

    let summary = sim.ledger().summary();
    assert_eq!(summary.token_posts, 5, "the faulty ones count as well");
    assert_eq!(summary.tokens_issued, 2);
}
