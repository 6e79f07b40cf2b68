//! `--status`: what the page shows beside what the service saw, as HTML and in a browser.

use tds_sim::{Config, Faults};
use tokio::time::{Duration, sleep};

use crate::{
    Bench,
    browser::Browser,
    err, output,
    serving::{Answer, Serving},
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

    fn shows(&self, id: &str) -> &str {
        let (_, rest) = self
            .0
            .split_once(&format!("id=\"{id}\""))
            .expect("it is there");
        let (_, rest) = rest.split_once('>').expect("HTML");
        rest.split_once("</").expect("HTML").0
    }

    /// The cells of the row of a resource.
    fn row(&self, target: &str) -> Vec<&str> {
        let row = format!("<tr><td>{target}</td>");
        let (_, cells) = self.0.split_once(&row).expect("its row");
        let (cells, _) = cells.split_once("</tr>").expect("HTML");
        let cells = cells.split("<td>").skip(1);
        cells
            .map(|cell| {
                let cell = cell.trim_end_matches("</td>").trim_end_matches("</span>");
                cell.rsplit('>').next().unwrap_or_default()
            })
            .collect()
    }
}

fn faults(fault: &str) -> Faults {
    let mut faults = Faults::default();
    faults.data.push(fault.parse().expect("a fault"));
    faults
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
async fn page_shows_the_condition_and_each_resource_with_age_size_and_failure() {
    let bench = Bench::new("status-resources", Config::default()).await;
    let more = ["--fresh", "1ms", "--stale", "1h", "--deadline", "1m"];
    let backend = backend(&bench, &more);
    for target in [
        "/v1/live/bus?$top=5",
        "/v1/live/tram?a={ready}&b",
        "/v1/live/metro",
    ] {
        assert_eq!(backend.get(target).await.status, 200, "{target}");
    }
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

    bench.server.sim().set_faults(faults("503"));
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

    bench.server.sim().set_faults(Faults::default());
    sleep(Duration::from_millis(1_100)).await;
    assert_eq!(backend.get("/v1/live/metro").await.status, 200);
    let page = Page::read(&backend).await;
    assert_eq!(page.row("/v1/live/metro")[3], "");
    assert_eq!(page.shows("ready"), "ready");
}

#[tokio::test]
async fn status_page_is_local_and_self_contained() {
    let bench = Bench::new("status-page", Config::default()).await;
    let run = bench.run(&["backend", "--status", "0.0.0.0:0"]).await;
    assert_eq!(run.status.code(), Some(2), "{}", err(&run));
    assert!(err(&run).contains("--status 0.0.0.0:0"), "{}", err(&run));

    let backend = backend(&bench, &[]);
    let page: Answer = backend.status("/").await;
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
    let bench = Bench::new("status-browser", Config::default()).await;
    let backend = backend(&bench, &["--deadline", "10s"]);
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
