//! No secret and no token shows anywhere. Alone in its binary, since what tracing lets through is
//! decided once per process.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/support.rs"]
mod support;

use std::{
    convert::Infallible,
    fmt::{Debug, Display},
    io,
    sync::{Arc, Mutex},
};

use http::Request;
use support::{
    Body, DATA, Endpoint, SECRET, dead, endpoint::Reply, get, layer, secs, seen, settle, tokens,
};
use tokio::time::advance;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_oidc_cc::{Credentials, TokenEndpoint, Tokens};
use tracing_subscriber::fmt::MakeWriter;

/// Collects whatever tracing writes.
#[derive(Clone, Default)]
struct Capture(Arc<Mutex<Vec<u8>>>);

impl Capture {
    fn text(&self) -> String {
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

fn show(text: &mut String, value: &(impl Debug + ?Sized)) {
    text.push_str(&format!("{value:?}\n{value:#?}\n"));
}

fn show_error(text: &mut String, error: &(impl Debug + Display)) {
    show(text, error);
    text.push_str(&format!("{error}\n{error:#}\n"));
}

#[tokio::test(start_paused = true)]
async fn no_secret_and_no_token_shows_anywhere() {
    let capture = Capture::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(capture.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut text = String::new();

    let credentials = Credentials::new("client", SECRET).unwrap();
    show(&mut text, &credentials);
    let uri = TokenEndpoint::keycloak("https://sso.example.com", "r").unwrap();
    show(&mut text, &Tokens::builder(uri, credentials));
    show_error(
        &mut text,
        &Credentials::new(SECRET, format!("{SECRET} {SECRET}")).unwrap_err(),
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
    let mut service = layer.layer(service_fn(|request: Request<Body>| async move {
        assert!(seen(&request).starts_with("Bearer canary-token-"));
        // What the layer sent is marked as sensitive.
        assert!(!format!("{request:?}").contains("canary"));
        Ok::<_, Infallible>(dead())
    }));
    let ready = ServiceExt::<Request<Body>>::ready(&mut service)
        .await
        .unwrap();
    let call = ready.call(get(DATA));
    show(&mut text, &call);
    call.await.unwrap();
    show_error(
        &mut text,
        &service
            .call(get("https://evil.example.com"))
            .await
            .unwrap_err(),
    );
    show_error(&mut text, &service.call(get(DATA)).await.unwrap_err());
    advance(secs(2_000)).await;
    settle().await;

    let traced = capture.text();
    for event in ["token renewed", "token request failed", "token dropped"] {
        assert!(traced.contains(event), "{event} in {traced}");
    }
    text.push_str(&traced);
    for canary in ["canary-secret", "canary-token", "Y2FuYXJ5", "canary%2D"] {
        assert!(!text.contains(canary), "{canary} in {text}");
    }
}
