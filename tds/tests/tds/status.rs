//! `--status`: what the page shows beside what the service saw, as HTML and in a browser.

use std::net::TcpListener;

use tokio::time::{Duration, sleep};

use crate::{Bench, browser::Browser, says, serving::Serving};

/// A page as text, or as a browser has drawn it.
struct Page(String);

// === impl Page ===

impl Page {
    async fn read(backend: &Serving) -> Self {
        let page = backend
            .ask_status("GET / HTTP/1.1\r\nhost: localhost")
            .await;
        assert_eq!(page.status, 200, "{}", page.text());
        Self(page.text())
    }

    fn shows(&self, id: &str) -> &str {
        let start = format!("id=\"{id}\"");
        let (_, rest) = self.0.split_once(&start).expect("it is there");
        let (_, rest) = rest.split_once('>').expect("HTML");
        rest.split_once("</").expect("HTML").0
    }

    /// The cells of the row of a resource.
    fn row(&self, target: &str) -> Vec<&str> {
        let row = format!("<tr><td>{target}</td>");
        let (_, cells) = self.0.split_once(&row).expect("its row");
        let (cells, _) = cells.split_once("</tr>").expect("HTML");
        let text = |cell: &'_ str| {
            cell.trim_end_matches("</td>")
                .trim_end_matches("</span>")
                .len()
        };
        let cells = cells.split("<td>").skip(1).map(|cell| &cell[..text(cell)]);
        cells
            .map(|cell| cell.rsplit('>').next().unwrap_or_default())
            .collect()
    }
}

/// A backend with a page.
fn backend(bench: &Bench, more: &str) -> Serving {
    bench.serve(&format!("--status 127.0.0.1:0 {more}"))
}

#[tokio::test]
async fn page_shows_the_condition_and_each_resource_with_age_size_and_failure() {
    let bench = Bench::new().await;
    let backend = backend(&bench, "--fresh 1ms --stale 1h --deadline 1m");
    let targets = [
        "/v1/live/bus?$top=5",
        "/v1/live/tram?a={ready}&b",
        "/v1/live/metro",
    ];
    for target in targets {
        assert_eq!(backend.get(target).await.status, 200, "{target}");
    }
    sleep(Duration::from_millis(5)).await;
    let page = Page::read(&backend).await;
    assert_eq!((page.shows("ready"), page.shows("troubles")), ("ready", ""));
    assert!(
        page.shows("client").contains("token good for 23 h; "),
        "{}",
        page.0
    );
    assert_eq!(page.shows("version"), env!("CARGO_PKG_VERSION"));
    assert!(page.shows("uptime").ends_with(" s"));
    let bus = page.row("/v1/live/bus?$top=5");
    assert!(bus[1].ends_with(" s"), "{bus:?}");
    assert_eq!((bus[0], bus[2], bus[3]), ("expired", "128 B", ""));
    assert_eq!(page.row("/v1/live/tram?a=&#123;ready}&amp;b")[2], "128 B");

    bench.fail("503");
    sleep(Duration::from_millis(20)).await;
    assert_eq!(backend.get("/v1/live/metro").await.status, 200, "stale");
    let page = Page::read(&backend).await;
    let metro = page.row("/v1/live/metro");
    assert_eq!((metro[0], metro[2]), ("fails", "128 B"), "{metro:?}");
    let is_told = metro[3].contains("s ago: ") && metro[3].contains("503");
    assert!(is_told, "{metro:?}");
    assert_eq!(page.shows("ready"), "not ready");
    assert!(page.shows("troubles").contains("outage for "), "{}", page.0);
    assert_eq!(page.row("/v1/live/bus?$top=5")[3], "");
    assert_eq!(page.0.matches("<tr><td>").count(), 3);
    let first = page.0.find("<tr><td>/v1/live/metro").expect("its row");
    assert!(first < page.0.find("<tr><td>/v1/live/bus").expect("its row"));
    for secret in ["eyJ", bench.server.client_secret()] {
        assert!(!page.0.contains(secret), "{secret}: {}", page.0);
    }

    bench.fail("");
    sleep(Duration::from_millis(1_100)).await;
    assert_eq!(backend.get("/v1/live/metro").await.status, 200);
    let page = Page::read(&backend).await;
    assert_eq!(page.row("/v1/live/metro")[3], "");
    assert_eq!(page.shows("ready"), "ready");
}

#[tokio::test]
async fn status_page_is_local_and_self_contained() {
    let bench = Bench::new().await;
    says(
        &bench.ends(2, "backend --status 0.0.0.0:0").await,
        "--status 0.0.0.0:0",
    );

    let backend = backend(&bench, "");
    let page = backend
        .ask_status("GET / HTTP/1.1\r\nhost: localhost")
        .await;
    let html = page.text();
    let (_, main) = html.split_once("<main").expect("its part");
    // The policy would forbid these, and the last is a place that was not filled.
    for part in ["://", " src=", "<script", " style=", " onclick=", "{"] {
        assert!(!main.contains(part), "{part}: {main}");
    }
    let policy = "\r\ncontent-security-policy: default-src 'none';";
    assert!(page.head.contains(policy), "{}", page.head);
    for head in [
        "host: evil.example",
        "host: {a}.example.org",
        "host: localhost\r\norigin: https://evil.example",
        "host: localhost\r\nsec-fetch-site: cross-site",
    ] {
        for path in ["/", "/other"] {
            let head = format!("GET {path} HTTP/1.1\r\n{head}");
            let answer = backend.ask_status(&head).await;
            assert_eq!(answer.status, 403, "{head}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn a_browser_shows_the_page_in_360_pixels_without_scripts() {
    let bench = Bench::new().await;
    let backend = backend(&bench, "--deadline 10s");
    assert_eq!(backend.get("/v1/live/bus").await.status, 200);
    let url = format!("http://{}/", backend.status.expect("it has one"));
    let html = "document.getElementById('ready') && document.documentElement.outerHTML";
    let options = ["--no-scripts", "--width=360"];
    let expressions = [html, "document.documentElement.scrollWidth"];
    let Some(mut browser) = Browser::open(&bench, &options, &url, &expressions) else {
        return;
    };
    let page = Page(browser.text());
    assert_eq!(page.row("/v1/live/bus")[2], "128 B");
    assert_eq!(browser.value(), 360, "nothing goes beyond the screen");
}

#[tokio::test]
async fn address_in_use_is_refused_before_any_request() {
    let bench = Bench::new().await;
    let held = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = held.local_addr().expect("its address").to_string();
    for (listen, status) in [(&*taken, "127.0.0.1:0"), ("127.0.0.1:0", &taken)] {
        let run = bench
            .ends(2, &format!("backend --listen {listen} --status {status}"))
            .await;
        says(&run, &taken);
    }
    assert_eq!(bench.asked(), (0, 0));
}
