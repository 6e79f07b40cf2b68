//! Users of a backend in other languages, by the scripts of `tests/clients`.

use std::process::Command;

use axum::{Router, http::header::CONTENT_TYPE, response::IntoResponse as _, routing};
use tokio::{net::TcpListener, time::Duration};

use crate::{Bench, browser::Browser, ended, out, output, serving::Serving, skipped, until};

const SCRIPT: &str = include_str!("../clients/client.mjs");

/// A service whose resources have tags and are worth a coding, and a backend that also pages of `origin` may read.
async fn backend(origin: &str) -> (Bench, Serving) {
    let bench = Bench::with(|config| {
        config.live_bytes = 4_000;
        config.live_every = Some(Duration::from_secs(3_600));
    })
    .await;
    bench.list("/v1/live/bus\n/nothing\n");
    let backend = bench.serve(&format!("--list list --allow-origin {origin} --fresh 1h"));
    // The codings of a response are made meanwhile.
    let head = "GET /v1/live/bus HTTP/1.1\r\nhost: a\r\naccept-encoding: gzip";
    until(async || backend.ask(head).await.head.contains("content-encoding")).await;
    (bench, backend)
}

/// Runs a script, and expects that it prints these lines.
async fn run(program: &str, script: &str, seen: &[&str]) {
    if skipped(program) {
        return;
    }
    let (bench, backend) = backend("https://app.example.org").await;
    let mut client = Command::new(program);
    client.arg(format!(
        "{}/tests/clients/{script}",
        env!("CARGO_MANIFEST_DIR")
    ));
    client.arg(format!("http://{}", backend.address));
    let run = output(client).await;
    ended(&run, 0);
    assert_eq!(out(&run).lines().collect::<Vec<_>>(), seen);
    assert_eq!(bench.asked().1, 2, "one a resource");
}

#[tokio::test]
#[ignore = "needs Python: see .ci/slow"]
async fn users_in_python_get_data_304_a_range_a_coding_and_problems() {
    let seen = ["data", "304", "range", "gzip", "problem"];
    run("python3", "client.py", &seen).await;
}

#[tokio::test]
#[ignore = "needs node: see .ci/slow"]
async fn users_in_node_get_data_304_a_range_and_problems() {
    run("node", "client.mjs", &["data", "304", "range", "problem"]).await;
}

#[tokio::test]
#[ignore = "needs a browser: see .ci/slow"]
async fn users_in_a_browser_read_from_an_allowed_origin_alone() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let origin = listener.local_addr().expect("its address");
    let pages = Router::new()
        .route("/", routing::get(|| async { "a page of the origin" }))
        .route(
            "/client.mjs",
            routing::get(|| async {
                ([(CONTENT_TYPE, "text/javascript")], SCRIPT).into_response()
            }),
        );
    tokio::spawn(async move { axum::serve(listener, pages).await });
    let check = |backend: &Serving| {
        format!(
            "import('/client.mjs').then(it => it.check('http://{}')).then(seen => seen.join(' '), error => `${{error}}`)",
            backend.address
        )
    };
    let (bench, allowed) = backend(&format!("http://{origin}")).await;
    let (_other, closed) = backend("https://app.example.org").await;
    let url = format!("http://{origin}/");
    let expressions = [check(&allowed), check(&closed)];
    let expressions = expressions.each_ref().map(String::as_str);
    let Some(browser) = Browser::open(&bench, &[], &url, &expressions) else {
        return;
    };
    let [read, refused] = tokio::task::spawn_blocking(|| {
        let mut browser = browser;
        [browser.text(), browser.text()]
    })
    .await
    .expect("no panic");
    assert_eq!(read, "data 304 range problem");
    assert_eq!(refused, "TypeError: Failed to fetch");
}
