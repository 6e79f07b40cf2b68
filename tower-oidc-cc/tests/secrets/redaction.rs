//! No secret and no token is in any text of the crate.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use crate::support;

use std::{
    fmt::{Debug, Display},
    io,
    sync::{Arc, Mutex},
};

use support::{
    DATA, Endpoint, SECRET, dead, endpoint::Reply, gateway, get, layer, secs, settle, tokens,
};
use tokio::time::advance;
use tower::{Layer, Service, ServiceExt};
use tower_oidc_cc::{Cause, Credentials, CredentialsProvider, TokenEndpoint, TokenSource};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// Collects the output of tracing.
#[derive(Clone, Default)]
pub(crate) struct Capture(Arc<Mutex<Vec<u8>>>);

impl Capture {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Capture {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Collects all events of this thread.
pub(crate) fn listen(capture: &Capture) -> DefaultGuard {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(capture.clone())
        .finish();
    tracing::subscriber::set_default(subscriber)
}

pub(crate) fn show(text: &mut String, value: &(impl Debug + ?Sized)) {
    text.push_str(&format!("{value:?}\n{value:#?}\n"));
}

pub(crate) fn show_error(text: &mut String, error: &(impl Debug + Display)) {
    show(text, error);
    text.push_str(&format!("{error}\n{error:#}\n"));
}

#[tokio::test(start_paused = true)]
async fn no_secret_or_token_is_printed_or_logged() {
    let capture = Capture::default();
    // With a single dispatcher, an event that another thread meets first is never recorded.
    let _other = tracing::Dispatch::new(tracing_subscriber::registry());
    let _guard = listen(&capture);
    let mut text = String::new();

    let credentials = Credentials::new("client", SECRET).unwrap();
    show(&mut text, &credentials);
    show(&mut text, &Credentials::basic("client", SECRET).unwrap());
    let uri = TokenEndpoint::keycloak("https://sso.example.com", "r").unwrap();
    show(&mut text, &TokenSource::builder(uri, credentials));
    show_error(
        &mut text,
        &Credentials::new(SECRET, format!("{SECRET}\t{SECRET}")).unwrap_err(),
    );

    let echoes = format!(r#"{{"error":"{SECRET}","error_description":"{SECRET}"}}"#);
    let wrong = r#"{"access_token":"canary-token-0","token_type":"canary-token-0"}"#;
    let spaced = r#"{"access_token":"canary-token-0 x","token_type":"Bearer"}"#;
    let garbled = r#"{"access_token":"canary-token-0","token_type":["canary-token-0"]}"#;
    let endpoint = Endpoint::scripted([
        Reply::body(400, echoes.clone()),
        Reply::body(401, echoes.clone()),
        Reply::body(200, echoes),
        Reply::body(200, wrong),
        Reply::body(200, spaced),
        Reply::body(200, garbled),
        Reply::down(),
        Reply::refusal(),
        Reply::broken(),
        Reply::hang(),
        Reply::token(1_000),
        Reply::refusal(),
    ]);
    let tokens = tokens(&endpoint);
    show(&mut text, &tokens);
    while let Err(error) = tokens.ready().await {
        show_error(&mut text, &error);
        advance(error.retry_after().unwrap()).await;
    }
    show(&mut text, &tokens);

    let layer = layer(&tokens);
    show(&mut text, &layer);
    let mut service = layer.layer(gateway(|token, request| {
        assert!(token.starts_with("Bearer canary-token-"));
        // The header of the layer is marked as sensitive.
        assert!(!format!("{request:?}").contains("canary"));
        Some(dead())
    }));
    let call = service.ready().await.unwrap().call(get(DATA));
    show(&mut text, &call);
    call.await.unwrap();
    show_error(
        &mut text,
        &service
            .call(get("https://evil.example.com"))
            .await
            .unwrap_err(),
    );
    advance(secs(2_000)).await;
    settle().await;

    // A panic of the HTTP client: its text, the error and the health.
    let hook = std::panic::take_hook();
    let panics = Capture::default();
    let sink = panics.clone();
    std::panic::set_hook(Box::new(move |info| {
        sink.0.lock().unwrap().extend(info.to_string().into_bytes());
    }));
    let panicking = support::tokens(&Endpoint::always(Reply::panic()));
    show_error(&mut text, &panicking.ready().await.unwrap_err());
    show(&mut text, &panicking.health());
    std::panic::set_hook(hook);
    let panicked = panics.text();
    assert!(panicked.contains("the client has a bug"), "{panicked}");
    text.push_str(&panicked);

    // Providers and health.
    for provider in [
        CredentialsProvider::file("client", "/no/such/file"),
        CredentialsProvider::from_fn(async || Credentials::new("client", SECRET)),
    ] {
        show(&mut text, &provider);
    }
    let provider = CredentialsProvider::from(Credentials::new("client", SECRET).unwrap());
    show(&mut text, &provider);
    let endpoint = Endpoint::scripted([Reply::refusal(), Reply::token(100)]);
    let tokens = support::tokens(&endpoint);
    let error = tokens.ready().await.unwrap_err();
    show_error(&mut text, &error);
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text.push_str(&format!("{cause:?} {cause}\n"));
        source = cause.source();
    }
    show(&mut text, &tokens.health());
    advance(error.retry_after().unwrap()).await;
    tokens.ready().await.unwrap();
    advance(secs(200)).await;
    settle().await;
    show(&mut text, &tokens.health());
    let token = tokens.token().await;
    show(&mut text, &token);

    // A refused response and its cause.
    let service = support::layer(&tokens).layer(gateway(|_, _| Some(dead())));
    let response = service.oneshot(get(DATA)).await.unwrap();
    show(&mut text, &response);
    show(&mut text, response.extensions().get::<Cause>().unwrap());

    let traced = capture.text();
    for event in [
        "token renewed",
        "token request failed",
        "the service refuses the token",
    ] {
        assert!(traced.contains(event), "{event} in {traced}");
    }
    text.push_str(&traced);
    for canary in [SECRET, "canary-token-"] {
        for form in forms(canary) {
            assert!(!text.contains(&form), "{form} in {text}");
        }
    }
}

/// The forms of a text: raw, percent-encoded, as bytes in a `Debug`, and in base64 at each of the three
/// possible offsets.
fn forms(text: &str) -> Vec<String> {
    let percent: String = text.bytes().map(|b| format!("%{b:02X}")).collect();
    let hyphen = text.replace('-', "%2D");
    let numbers: Vec<_> = text.bytes().map(|b| b.to_string()).collect();
    let mut forms = vec![text.to_owned(), percent, hyphen, numbers.join(", ")];
    forms.extend((0..3).map(|skip| base64(&text.as_bytes()[skip..])));
    forms
}

/// The base64 of all whole groups of three bytes, which is the same inside of a longer text.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |n: u32| char::from(DIGITS[usize::try_from(n & 63).unwrap()]);
    let group = |group: &[u8]| {
        let n = group.iter().fold(0, |n, b| n << 8 | u32::from(*b));
        [18, 12, 6, 0].map(|shift| digit(n >> shift))
    };
    bytes.chunks_exact(3).flat_map(group).collect()
}

#[test]
fn secret_scan_recognizes_encoded_forms() {
    assert_eq!(base64(b"canary"), "Y2FuYXJ5");
    assert!(forms("a-b").contains(&"%61%2D%62".to_owned()));
}
