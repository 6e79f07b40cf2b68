//! Users of a backend in other languages, by the scripts of `tests/clients`.

use std::{fs, process::Command};

use axum::{Router, http::header::CONTENT_TYPE, response::IntoResponse as _, routing};
use tds_sim::Config;
use tokio::{net::TcpListener, time::Duration};

use crate::{Bench, browser::Browser, err, out, output, serving::Serving, skipped, text};

const SCRIPT: &str = include_str!("../clients/client.mjs");

/// A service whose resources have tags and are worth a coding, and a backend that also pages of `origin` may read.
async fn backend(name: &str, origin: &str) -> (Bench, Serving) {
    let mut config = Config::default();
    config.live_bytes = 4_000;
    config.live_every = Some(Duration::from_secs(3_600));
    let bench = Bench::new(name, config).await;
    let list = bench.path("resources");
    fs::write(&list, "/v1/live/bus\n/nothing\n").expect("a file");
    let backend = Serving::start(bench.tds(&[
        "backend",
        "--list",
        text(&list),
        "--listen",
        "127.0.0.1:0",
        "--allow-origin",
        origin,
        "--fresh",
        "1h",
    ]));
    // The codings of a response are made meanwhile.
    for _ in 0..200 {
        let head = "GET /v1/live/bus HTTP/1.1\r\nhost: a\r\naccept-encoding: gzip";
        if backend.ask(head).await.head.contains("content-encoding") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (bench, backend)
}

/// Runs a script, and expects that it prints these lines.
async fn run(program: &str, script: &str, seen: &[&str]) {
    if skipped(program) {
        return;
    }
    let (bench, backend) = backend(&format!("clients-{program}"), "https://app.example.org").await;
    let mut client = Command::new(program);
    client.arg(format!(
        "{}/tests/clients/{script}",
        env!("CARGO_MANIFEST_DIR")
    ));
    client.arg(format!("http://{}", backend.address));
    let run = output(client).await;
    assert!(run.status.success(), "{}{}", out(&run), err(&run));
    assert_eq!(out(&run).lines().collect::<Vec<_>>(), seen);
    assert_eq!(
        bench.server.ledger().summary().data_calls,
        2,
        "one a resource"
    );
}

#[tokio::test]
#[ignore = "needs Python: see .ci/slow"]
async fn users_in_python_get_data_304_a_range_a_coding_and_problems() {
    run(
        "python3",
        "client.py",
        &["data", "304", "range", "gzip", "problem"],
    )
    .await;
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
    let (bench, allowed) = backend("clients-browser", &format!("http://{origin}")).await;
    let (_other, closed) = backend("clients-closed", "https://app.example.org").await;
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
