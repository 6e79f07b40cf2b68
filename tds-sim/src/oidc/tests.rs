//! The table of refusals measured at Keycloak 26.5.0, row by row, and what is granted.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, Request};
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

/// Sends a form to a path, with this `Authorization` if it is not empty.
async fn posted(sim: &Sim, path: &str, authorization: &str, form: &str) -> Got {
    let mut request = Request::post(path).header("content-type", FORM);
    if !authorization.is_empty() {
        request = request.header("authorization", authorization);
    }
    send(sim, request.body(form.to_owned()).unwrap()).await
}

async fn post(sim: &Sim, form: &str) -> Got {
    posted(sim, TOKEN, "", form).await
}

async fn basic(sim: &Sim, pair: &str, form: &str) -> Got {
    let basic = format!("Basic {}", BASE64_STANDARD.encode(pair));
    posted(sim, TOKEN, &basic, form).await
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

const GRANT: &str = "grant_type=client_credentials";
const BAD: &str = "Invalid client or Invalid client credentials";

/// What is wrong, the form, the status, and the code and the text of the error.
const REFUSALS: &str = "\
wrong secret | GRANT&client_id=ID&client_secret=no | 401 | unauthorized_client | BAD
no secret | GRANT&client_id=ID | 401 | unauthorized_client | BAD
unknown client | GRANT&client_id=no&client_secret=no | 401 | invalid_client | BAD
no client_id | GRANT | 401 | invalid_client | BAD
no grant_type | GOOD | 400 | invalid_request | Missing form parameter: grant_type
unknown grant_type | grant_type=no&GOOD | 400 | unsupported_grant_type | Unsupported grant_type
password grant | grant_type=password&GOOD | 400 | unauthorized_client | Client not allowed for direct access grants
a field twice | GRANT&GOOD&scope=email&scope=email | 400 | invalid_request | duplicated parameter
the same secret twice | GRANT&GOOD&client_secret=x | 400 | invalid_request | duplicated parameter
unknown scope | GRANT&GOOD&scope=nope | 400 | invalid_scope | Invalid scopes: nope
disabled client | GRANT&OTHER | 401 | invalid_client | BAD
rotated secret | GRANT&GOOD | 401 | unauthorized_client | BAD";

#[tokio::test(start_paused = true)]
async fn token_refusals_have_the_texts_of_keycloak() {
    let sim = Sim::new(Config::default());
    let good = credentials(&sim);
    let other = sim.add_key("demo").unwrap();
    let (id, secret) = (&other.client_id, &other.client_secret);
    let other = format!("client_id={id}&client_secret={secret}");
    sim.disable_key(id).unwrap();
    for row in REFUSALS.lines() {
        let [what, form, status, error, text] = row.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        if what == "rotated secret" {
            sim.rotate_secret(sim.client_id()).unwrap();
        }
        let form = form.replace("GRANT", GRANT).replace("OTHER", &other);
        let form = form.replace("GOOD", &good).replace("ID", sim.client_id());
        let text = if text == "BAD" { BAD } else { text };
        let got = post(&sim, &form).await;
        assert_refused(what, &got, status.parse().unwrap(), error, text);
    }
}

#[tokio::test(start_paused = true)]
async fn token_endpoint_reads_only_form_bodies() {
    let sim = Sim::new(Config::default());
    let with = async |kind: &str, body: &str| {
        let request = Request::post(TOKEN).header("content-type", kind);
        send(&sim, request.body(body.to_owned()).unwrap()).await
    };
    let got = with("multipart/form-data; boundary=x", "").await;
    assert_refused("multipart body", &got, 401, "invalid_client", BAD);
    let got = with("application/json", r#"{"grant_type":"x"}"#).await;
    let missing = "Missing form parameter: grant_type";
    assert_refused("JSON body", &got, 400, "invalid_request", missing);
    let got = with(&format!("{FORM}; charset=utf-8"), &full(&sim)).await;
    assert_eq!(got.status, 200);
}

#[tokio::test(start_paused = true)]
async fn basic_credentials_are_form_decoded() {
    let sim = Sim::new(Config::default());
    let (id, secret) = (sim.client_id(), sim.client_secret());
    let encoded = format!("{}:{secret}", id.replace('-', "%2D"));
    let plain = format!("{id}:{secret}");
    // Also with the fields.
    for (pair, form) in [(&plain, GRANT), (&encoded, GRANT), (&encoded, &full(&sim))] {
        assert_eq!(basic(&sim, pair, form).await.status, 200, "{pair}");
    }
    let unexpected = "Unexpected error when authenticating client";
    let got = basic(&sim, &format!("{id}:50%"), GRANT).await;
    assert_refused("percent sign", &got, 400, "unauthorized_client", unexpected);
    for wrong in ["wrong", "a/b", "ü", "a&b"] {
        let got = basic(&sim, &format!("{id}:{wrong}"), GRANT).await;
        assert_refused(wrong, &got, 401, "unauthorized_client", BAD);
    }
    let got = basic(&sim, "no colon", GRANT).await;
    assert_refused("no pair", &got, 401, "invalid_client", BAD);
}

#[tokio::test(start_paused = true)]
async fn the_client_of_the_form_overrides_the_basic_header() {
    let sim = Sim::new(Config::default());
    let (id, secret) = (sim.client_id(), sim.client_secret());
    let right = format!("{id}:{secret}");
    let got = basic(&sim, &format!("{id}:wrong"), &full(&sim)).await;
    assert_eq!(got.status, 200);
    let got = basic(&sim, &right, &format!("{GRANT}&client_secret=wrong")).await;
    assert_refused("secret", &got, 401, "unauthorized_client", BAD);
    let got = basic(&sim, &right, &format!("{GRANT}&client_id=other")).await;
    assert_refused("id", &got, 401, "invalid_client", BAD);
}

#[tokio::test(start_paused = true)]
async fn wrong_paths_and_methods_have_their_own_errors() {
    let sim = Sim::new(Config::default());
    let other = TOKEN.replace("ServiceConnect", "other");
    let outside = TOKEN.strip_prefix("/auth").unwrap();
    let page = "<html><body><h1>Resource not found</h1></body></html>";
    for (method, path, expected) in [
        (
            "GET",
            TOKEN,
            (405, r#"{"error":"HTTP 405 Method Not Allowed"}"#),
        ),
        ("POST", &other, (404, r#"{"error":"Realm does not exist"}"#)),
        ("POST", outside, (404, page)),
    ] {
        let request = Request::builder().method(method).uri(path);
        let got = send(&sim, request.body(String::new()).unwrap()).await;
        assert_eq!((got.status, &*got.text), expected, "{path}");
        let is_page = got.headers["content-type"] == "text/html; charset=utf-8";
        assert_eq!(is_page, path == outside, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn token_response_has_the_fields_of_keycloak() {
    let config = Config {
        expires_in: 300,
        ..Config::default()
    };
    let sim = Sim::new(config);
    for path in [TOKEN.to_owned(), format!("{TOKEN}/")] {
        let got = posted(&sim, &path, "", &full(&sim)).await;
        assert_eq!(got.status, 200);
        assert_eq!(got.headers["cache-control"], "no-store");
        assert_eq!(got.headers["pragma"], "no-cache");
        let mut reply: Value = serde_json::from_str(&got.text).unwrap();
        let token = reply["access_token"].take();
        assert_eq!(token.as_str().unwrap().split('.').count(), 3);
        let rest = json!({
            "access_token": null, "expires_in": 300, "refresh_expires_in": 0, "token_type": "Bearer",
            "not-before-policy": 0, "scope": "profile email",
        });
        assert_eq!(reply, rest);
    }
    let asked = format!("{}&scope=openid%20email", full(&sim));
    let reply: Value = serde_json::from_str(&post(&sim, &asked).await.text).unwrap();
    assert_eq!(reply["scope"], "openid profile email");
    assert!(reply["id_token"].is_string());
    let config = (*sim.state.config()).clone();
    sim.state.set(Config {
        expires_in: 7,
        ..config
    });
    let reply: Value = serde_json::from_str(&post(&sim, &asked).await.text).unwrap();
    assert_eq!(reply["expires_in"], 7);
}

#[tokio::test(start_paused = true)]
async fn token_endpoint_faults_are_played() {
    let sim = Sim::new(Config::default());
    let plays = |fault: &str| {
        let token = vec![fault.parse().unwrap()];
        sim.set_faults(Faults {
            token,
            ..Faults::default()
        });
    };
    plays("503");
    assert_eq!(post(&sim, &full(&sim)).await.status, 503);
    plays("html");
    let got = post(&sim, &full(&sim)).await;
    assert!(got.status == 200 && got.text.starts_with("<!doctype html>"));
    plays("slow:30s");
    let before = tokio::time::Instant::now();
    assert_eq!(post(&sim, &full(&sim)).await.status, 200);
    assert_eq!(before.elapsed(), Duration::from_secs(30));
    plays("down@every:2");
    assert_eq!(post(&sim, &full(&sim)).await.status, 200);
    let request = Request::post(TOKEN).header("content-type", FORM);
    let closed = sim.clone().oneshot(request.body(full(&sim)).unwrap()).await;
    assert!(closed.unwrap_err().kind == crate::error::Kind::Closed);

    let summary = sim.ledger().summary();
    assert_eq!(summary.token_posts, 5, "the faulty ones count as well");
    assert_eq!(summary.tokens_issued, 2);
}
