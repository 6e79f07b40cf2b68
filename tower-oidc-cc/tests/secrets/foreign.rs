//! Errors of foreign code: a provider, a store, an HTTP client. Their texts hold secrets, and no text of this crate
//! shows one.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    error::Error,
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use tokio::time::advance;
use tower::service_fn;
use tower_oidc_cc::{
    Credentials, CredentialsProvider, StoredToken, TokenEndpoint, TokenSource, TokenStore,
};

use crate::{
    redaction::{Capture, listen, show, show_error},
    support::{Body, Endpoint, endpoint::Reply, secs, settle},
};

type BoxError = Box<dyn Error + Send + Sync>;

/// Each secret stands between `«` and `»`. The source has none of them among its known values, so that only their syntax shows them.
const TEXTS: [&str; 5] = [
    "not valid: «eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJl»",
    "GET https://vault.example/v1/kv?token=«4bT9x0Qz1kW7»: 404",
    "GET https://me:«hunter2»@vault.example/v1/kv: 404",
    "Authorization: Bearer «mF_9.B5f-4.1JqM7» was refused",
    "Authorization: Basic «bWU6cGFzc3dvcmQx» was refused",
];

/// A secret and a token that consist of words, so only a redactor that has them finds them.
const SECRET: &str = "correct horse+battery";
const TOKEN: &str = "staple-of-words";

fn endpoint() -> TokenEndpoint {
    TokenEndpoint::new("https://sso.example.com/token".parse().unwrap()).unwrap()
}

fn parts(marked: &str) -> (String, String) {
    let secret = marked.split(['«', '»']).nth(1).unwrap();
    (marked.replace(['«', '»'], ""), secret.to_owned())
}

/// The texts of a source that has no token.
async fn said(tokens: &TokenSource, capture: &Capture) -> String {
    let mut text = String::new();
    if let Err(error) = tokens.ready().await {
        show_error(&mut text, &error);
    }
    show(&mut text, &tokens.health());
    text.push_str(&capture.text());
    text
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_repeats_an_earlier_secret_shows_none() {
    let capture = Capture::default();
    let _guard = listen(&capture);
    let asked = Arc::new(AtomicUsize::new(0));
    let provider = CredentialsProvider::from_fn(move || {
        let asked = asked.fetch_add(1, Ordering::Relaxed);
        async move {
            match asked {
                0 => Ok(Credentials::new("my client", SECRET)?),
                _ => Err(BoxError::from(format!(
                    "my client: still {SECRET:?}, in a form correct+horse%2bbattery, and {:?}",
                    Credentials::basic("my client", SECRET)
                ))),
            }
        }
    });
    let tokens =
        TokenSource::builder(endpoint(), provider).build(Endpoint::always(Reply::refusal()));
    let error = tokens.ready().await.unwrap_err();
    advance(error.retry_after().unwrap()).await;
    let said = said(&tokens, &capture).await;
    assert!(said.contains("my client: still"), "{said}");
    assert!(
        !said.contains("horse") && !said.contains("battery"),
        "{said}"
    );
}

/// Echoes everything that it was given.
struct Echoing(&'static str);

impl TokenStore for Echoing {
    async fn load(
        &self,
        _: &str,
        _: &(dyn Fn(&StoredToken) -> bool + Sync),
    ) -> Result<Option<StoredToken>, BoxError> {
        Err(format!("cannot load: {}", self.0).into())
    }

    async fn save(&self, _: &str, token: &StoredToken) -> Result<(), BoxError> {
        Err(format!(
            "cannot save {:?}",
            String::from_utf8_lossy(token.as_bytes())
        )
        .into())
    }
}

#[tokio::test(start_paused = true)]
async fn no_text_of_a_provider_a_store_or_an_http_client_shows_a_secret() {
    for (text, secret) in TEXTS.map(parts) {
        for (foreign, expected) in [
            ("provider", "token request failed"),
            ("store", "cannot save"),
            ("client", "cannot be reached"),
            ("client, Basic", "cannot be reached"),
        ] {
            let capture = Capture::default();
            let _guard = listen(&capture);
            let (of_client, of_provider) = (text.clone(), text.clone());
            let client = service_fn(move |request: Request<Body>| {
                let text = foreign.starts_with("client").then(|| of_client.clone());
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await?.to_bytes();
                    let form = String::from_utf8_lossy(&body).into_owned();
                    if let Some(text) = text {
                        let header = head.headers.get("authorization");
                        let header = header.map(|it| it.to_str().unwrap().to_owned());
                        let said = format!("{text} after {form:?} and {header:?}");
                        return Err(BoxError::from(said));
                    }
                    let reply = format!(r#"{{"access_token":"{TOKEN}","token_type":"Bearer"}}"#);
                    Ok(Response::new(Full::new(Bytes::from(reply))))
                }
            });
            let provider = CredentialsProvider::from_fn(move || {
                ready(match foreign {
                    "provider" => Err(BoxError::from(of_provider.clone())),
                    "client, Basic" => Ok(Credentials::basic("client", SECRET).unwrap()),
                    _ => Ok(Credentials::new("client", SECRET).unwrap()),
                })
            });
            let mut builder = TokenSource::builder(endpoint(), provider);
            if foreign == "store" {
                builder = builder.store(Echoing(text.clone().leak()));
            }
            let said = said(&builder.build(client), &capture).await;
            assert!(said.contains(expected), "{foreign}: {said}");
            for secret in [&*secret, TOKEN, "battery", "Y2xpZW50OmNvcnJlY3"] {
                assert!(!said.contains(secret), "{foreign}: {said}");
            }
        }
    }
}

/// A renewal replaces the token, and a text about the one before is still clean.
#[tokio::test(start_paused = true)]
async fn the_current_and_the_last_token_are_known() {
    let capture = Capture::default();
    let _guard = listen(&capture);
    let asked = Arc::new(AtomicUsize::new(0));
    let client = service_fn(move |_: Request<Body>| {
        let asked = asked.fetch_add(1, Ordering::Relaxed);
        async move {
            if asked > 1 {
                return Err(BoxError::from(
                    "neither staple-of-words-one nor staple-of-words-two is good",
                ));
            }
            let token = ["staple-of-words-one", "staple-of-words-two"][asked];
            let reply =
                format!(r#"{{"access_token":"{token}","token_type":"Bearer","expires_in":100}}"#);
            Ok(Response::new(Full::new(Bytes::from(reply))))
        }
    });
    let credentials = Credentials::new("client", SECRET).unwrap();
    let tokens = TokenSource::builder(endpoint(), credentials).build(client);
    tokens.ready().await.unwrap();
    for _ in 0..3 {
        advance(secs(85)).await;
        settle().await;
    }
    let said = said(&tokens, &capture).await;
    assert!(
        said.contains("neither [redacted] nor [redacted] is good"),
        "{said}"
    );
    assert!(!said.contains("staple"), "{said}");
}
