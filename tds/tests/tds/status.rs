//! `--status`: what the page shows beside what the service saw, as HTML and in a browser.

use std::{fs, process::Command};

use tds_sim::{Config, Faults};
use tokio::time::{Duration, sleep, timeout};

use crate::{
    Bench, HANGS, end, err, out, output, piped,
    serving::{Answer, Serving},
    skipped, text,
};

/// A page as text, or as a browser has drawn it.
struct Page(String);

// === impl Page ===

impl Page {
    async fn read(backend: &Serving) -> Self {
        let page = backend.status("/").await;
        assert_eq!(page.status, 200, "{}", page.text());
        Self(page.text())
    }

    async fn drawn(bench: &Bench, address: &str) -> Self {
        let mut chromium = Command::new("chromium");
        chromium.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-proxy-server",
            "--dump-dom",
        ]);
        chromium.arg(format!(
            "--user-data-dir={}",
            bench.path("profile").display()
        ));
        chromium.arg(address);
        Self(out(&end(piped(chromium)).await))
    }

    fn shows(&self, id: &str) -> &str {
        let (_, rest) = self
            .0
            .split_once(&format!("id=\"{id}\""))
            .expect("it is there");
        let (_, rest) = rest.split_once('>').expect("HTML");
        rest.split_once("</").expect("HTML").0
    }

    fn number(&self, id: &str) -> u64 {
        let text = self.shows(id).split(' ').next().unwrap_or_default();
        text.parse().expect(id)
    }
}

/// A backend with a page.
fn backend(bench: &Bench, more: &[&str]) -> Serving {
    let arguments = [
        "backend",
        "--listen",
        "127.0.0.1:0",
        "--status",
        "127.0.0.1:0",
    ];
    Serving::start(bench.tds(&[&arguments[..], more].concat()))
}

#[tokio::test]
async fn status_page_agrees_with_the_ledger() {
    let bench = Bench::new("status-numbers", Config::default()).await;
    let backend = backend(&bench, &["--deadline", "1m"]);
    for n in 0..20 {
        let answer = backend.get(&format!("/v1/live/bus-{n}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(backend.get("/nothing?q=canary").await.status, 404);
    let page = Page::read(&backend).await;
    assert_eq!((page.shows("ready"), page.shows("troubles")), ("ready", ""));
    let mut faults = Faults::default();
    faults.data.push("503".parse().expect("a fault"));
    bench.server.sim().set_faults(faults);
    for n in 0..2 {
        let target = format!("/v1/live/rail-{n}?q=canary");
        assert_eq!(backend.get(&target).await.status, 503);
    }
    let page = Page::read(&backend).await;
    bench.server.sim().set_faults(Faults::default());
    let seen = bench.server.ledger().summary();
    assert!(
        page.number("granted") <= seen.data_calls + seen.token_posts,
        "{}",
        page.0
    );
    assert!(page.number("granted") >= 23, "{}", page.0);
    assert_eq!(page.number("tokens"), seen.tokens_issued);
    assert!(
        page.number("sockets") <= seen.peak_sockets + 1,
        "{}",
        page.0
    );
    assert_eq!(
        (page.shows("rate"), page.number("most_sockets")),
        ("50 per second", 60)
    );
    assert_eq!(
        (page.shows("ready"), page.shows("token_error")),
        ("not ready", "none")
    );
    assert!(
        page.0.contains("the last call failed 0 s ago: "),
        "{}",
        page.0
    );
    assert!(page.shows("token_age").ends_with(" s"), "{}", page.0);
    assert!(page.shows("token_next").ends_with(" h"), "{}", page.0);
    for secret in ["eyJ", bench.server.client_secret()] {
        assert!(!page.0.contains(secret), "{secret}: {}", page.0);
    }
}

#[tokio::test]
async fn a_browser_shows_the_causes_of_waits_in_360_pixels_and_without_scripts() {
    let mut config = Config::default();
    config.faults.before_head = "3600s".parse().expect("a delay");
    let bench = Bench::new("status-waits", config).await;
    let backend = backend(&bench, &["--deadline", "10s"]);
    let mut users = Vec::new();
    for n in 0..90 {
        let head = format!("GET /v1/live/bus-{n} HTTP/1.1\r\nhost: localhost");
        users.push(backend.send(&head).await);
    }
    bench.seen(|seen| seen.in_progress == 50).await;
    let late = async {
        while !backend
            .get("/readyz")
            .await
            .text()
            .contains("90 calls unanswered")
        {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(HANGS, late)
        .await
        .expect("all users have waited for ten seconds");
    let expect = |page: &Page| {
        assert_eq!(
            (page.number("in_flight"), page.number("waiting")),
            (50, 40),
            "{}",
            page.0
        );
        assert_eq!(page.shows("waits_for"), "the rate limit (50 per second)");
        assert!(
            page.shows("troubles").contains("90 calls unanswered for "),
            "{}",
            page.0
        );
        assert!(page.shows("oldest").ends_with(" s"));
    };
    expect(&Page::read(&backend).await);
    if skipped("chromium") {
        return;
    }
    let url = format!("http://{}/", backend.status.expect("it has one"));
    // Its policy forbids scripts, and it has none.
    expect(&Page::drawn(&bench, &url).await);
    // In a frame of 360 pixels nothing goes beyond them.
    let html = Page::read(&backend).await.0;
    let (before, after) = FRAME.split_once("PAGE").expect("its place");
    let html = html.replace('&', "&amp;").replace('"', "&quot;");
    let frame = bench.path("frame.html");
    fs::write(&frame, [before, &html, after].concat()).expect("a file");
    let page = Page::drawn(&bench, &format!("file://{}", text(&frame))).await;
    assert_eq!(page.number("width"), 360);
}

/// A page in a frame, and its width.
const FRAME: &str = r#"<!doctype html><iframe id="frame" style="width:360px;height:800px;border:0" srcdoc="PAGE"></iframe>
<p id="width"></p><script>
onload = () => {
  const page = document.getElementById("frame").contentDocument.documentElement;
  document.getElementById("width").textContent = page.scrollWidth;
};
</script>"#;

#[tokio::test]
async fn status_page_is_local_and_self_contained() {
    let bench = Bench::new("status-page", Config::default()).await;
    let run = bench.run(&["backend", "--status", "0.0.0.0:0"]).await;
    assert_eq!(run.status.code(), Some(2), "{}", err(&run));
    assert!(err(&run).contains("--status 0.0.0.0:0"), "{}", err(&run));

    let backend = backend(&bench, &[]);
    let page: Answer = backend.status("/").await;
    let policy = "\r\ncontent-security-policy: default-src 'none';";
    assert!(page.head.contains(policy), "{}", page.head);
    let html = page.text();
    for part in ["://", " src=", "<script", "{"] {
        let html = html.split("</style>").last().unwrap_or_default();
        assert!(!html.contains(part), "{part}: {html}");
    }
    for head in [
        "host: evil.example",
        "host: localhost\r\norigin: https://evil.example",
        "host: localhost\r\nsec-fetch-site: cross-site",
    ] {
        let head = format!("GET / HTTP/1.1\r\n{head}");
        let answer = backend.ask_status(&head).await;
        assert_eq!(answer.status, 403, "{head}: {}", answer.text());
    }
}

#[tokio::test]
async fn address_in_use_is_refused_before_any_request() {
    let bench = Bench::new("status-taken", Config::default()).await;
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = held.local_addr().expect("its address").to_string();
    for arguments in [
        ["backend", "--listen", &taken, "--status", "127.0.0.1:0"],
        ["backend", "--listen", "127.0.0.1:0", "--status", &taken],
    ] {
        let run = output(bench.tds(&arguments)).await;
        assert_eq!(run.status.code(), Some(2), "{}", err(&run));
        assert!(err(&run).contains(&taken), "{}", err(&run));
    }
    assert_eq!(bench.server.ledger().summary().token_posts, 0);
}
