//! `--status`: what the page shows beside what the service saw, as HTML and in a browser.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use sha2::{Digest as _, Sha256};
use tds_sim::{Config, Faults};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Duration, sleep, timeout},
};

use crate::{
    Bench, HANGS,
    browser::Browser,
    err, output,
    serving::{Answer, Serving},
    signal,
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

    fn number(&self, id: &str) -> u64 {
        let text = self.shows(id).split(' ').next().unwrap_or_default();
        text.parse().expect(id)
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

    fn state(&self) -> &str {
        let (_, state) = self.0.split_once("<main data-state=\"").expect("a state");
        state.split('"').next().unwrap_or_default()
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
    // A path that is not there is worth a look, and no reason to alarm.
    assert_eq!(page.state(), "warn", "{}", page.0);
    assert!(
        page.0
            .contains("<li>1 resource failed at the last call</li>"),
        "{}",
        page.0
    );
    bench.server.sim().set_faults(faults("503"));
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
    assert_eq!(page.state(), "bad", "{}", page.0);
    assert!(page.shows("token_age").ends_with(" s"), "{}", page.0);
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
    let url = format!("http://{}/", backend.status.expect("it has one"));
    let html = "document.getElementById('ready') && document.documentElement.outerHTML";
    let options = ["--no-scripts", "--width=360"];
    let expressions = [html, "document.documentElement.scrollWidth"];
    let Some(mut browser) = Browser::open(&bench, &options, &url, &expressions) else {
        return;
    };
    expect(&Page(browser.text()));
    assert_eq!(browser.value(), 360, "nothing goes beyond the screen");
}

#[tokio::test]
async fn page_shows_users_and_resources_with_age_size_and_last_failure() {
    let bench = Bench::new("status-resources", Config::default()).await;
    let backend = backend(
        &bench,
        &["--fresh", "1ms", "--stale", "1h", "--deadline", "1m"],
    );
    for target in [
        "/v1/live/bus?$top=5",
        "/v1/live/tram?a={rate}&b",
        "/v1/live/metro",
    ] {
        assert_eq!(backend.get(target).await.status, 200, "{target}");
    }
    let page = Page::read(&backend).await;
    let bus = page.row("/v1/live/bus?$top=5");
    assert!(bus[1].ends_with(" s"), "{bus:?}");
    assert_eq!((bus[0], bus[2], bus[3]), ("expired", "128 B", ""));
    assert_eq!(page.row("/v1/live/tram?a=&#123;rate}&amp;b")[2], "128 B");
    assert_eq!(page.state(), "good", "{}", page.0);
    bench.server.sim().set_faults(faults("503"));
    sleep(Duration::from_millis(20)).await;
    assert_eq!(backend.get("/v1/live/metro").await.status, 200, "stale");
    let page = Page::read(&backend).await;
    let metro = page.row("/v1/live/metro");
    assert_eq!((metro[0], metro[2]), ("fails", "128 B"), "{metro:?}");
    assert!(
        metro[3].contains("s ago: ") && metro[3].contains("503"),
        "{metro:?}"
    );
    assert_eq!(page.row("/v1/live/bus?$top=5")[3], "");
    let rows: Vec<_> = page.0.matches("<tr><td>").collect();
    assert_eq!(rows.len(), 3);
    let first = page.0.find("<tr><td>/v1/live/metro").expect("its row");
    assert!(first < page.0.find("<tr><td>/v1/live/bus").expect("its row"));

    bench.server.sim().set_faults(Faults::default());
    sleep(Duration::from_millis(1_100)).await;
    assert_eq!(backend.get("/v1/live/metro").await.status, 200);
    let page = Page::read(&backend).await;
    assert!(page.row("/v1/live/metro")[3].contains("503"), "it is kept");
    assert_ne!(page.row("/v1/live/metro")[0], "fails");
    assert_eq!(page.shows("version"), env!("CARGO_PKG_VERSION"));
    assert!(page.shows("uptime").ends_with(" s"));
}

#[tokio::test]
async fn page_in_a_browser_follows_the_backend_and_says_when_it_has_gone() {
    let bench = Bench::new("status-live", Config::default()).await;
    let backend = backend(&bench, &[]);
    let url = format!("http://{}/", backend.status.expect("it has one"));
    // The first of these is true at once, and the others only if the script runs under the policy.
    let expressions = [
        "document.title",
        "document.querySelector('#resources').textContent.includes('/v1/live/bus') && document.title == 'tds: ready'",
        "document.querySelector('link').href.startsWith('data:image/svg') && document.title",
        "document.body.classList.contains('lost') && document.title",
    ];
    let Some(mut browser) = Browser::open(&bench, &[], &url, &expressions) else {
        return;
    };
    assert!(browser.text().starts_with("tds: "));
    assert_eq!(backend.get("/v1/live/bus").await.status, 200);
    // A picture taken during the first call has the path and is not ready yet; a later one is.
    let mut browser = tokio::task::spawn_blocking(|| {
        browser.value();
        browser.value();
        browser
    })
    .await
    .expect("no panic");
    // The browser's connection is open, and delays nothing.
    let mut backend = backend;
    signal(&backend.child, "-TERM");
    let ended = async {
        while backend.child.try_wait().expect("it is ours").is_none() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(HANGS, ended).await.expect("it ends");
    assert_eq!(browser.text(), "tds: no contact");
}

#[tokio::test]
async fn events_have_the_page_each_second_and_delay_no_shutdown() {
    let bench = Bench::new("status-events", Config::default()).await;
    let mut backend = backend(&bench, &[]);
    let address = backend.status.expect("it has one");
    let mut events = TcpStream::connect(address).await.expect("it listens");
    let head = b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n";
    events.write_all(head).await.expect("it reads");
    let mut seen = String::new();
    let two = async {
        let mut some = vec![0; 65_536];
        while seen.matches("data: </main>").count() < 2 {
            let length = events.read(&mut some).await.expect("an event");
            assert!(length > 0, "{seen}");
            seen += &String::from_utf8_lossy(&some[..length]);
        }
    };
    timeout(HANGS, two).await.expect("one a second");
    assert!(seen.contains("text/event-stream"), "{seen}");
    assert_eq!(seen.matches("data: <main data-state=").count(), 2);
    signal(&backend.child, "-TERM");
    let ended = async {
        while backend.child.try_wait().expect("it is ours").is_none() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(HANGS, ended).await.expect("it ends");
    drop(events);
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
    let (main, _) = main.split_once("</main>").expect("its end");
    // The policy would forbid these, and the last is a place that was not filled.
    for part in ["://", " src=", "<script", " style=", " onclick=", "{"] {
        assert!(!main.contains(part), "{part}: {main}");
    }
    for (element, directive) in [("script", "script-src"), ("style", "style-src")] {
        let (_, text) = html.split_once(&format!("<{element}>")).expect("its begin");
        let (text, _) = text.split_once(&format!("</{element}>")).expect("its end");
        let hash = BASE64_STANDARD.encode(Sha256::digest(text)).to_lowercase();
        let allowed = format!(" {directive} 'sha256-{hash}';");
        assert!(page.head.contains(&allowed), "{allowed}: {}", page.head);
    }
    let policy = "\r\ncontent-security-policy: default-src 'none';";
    assert!(page.head.contains(policy), "{}", page.head);
    for head in [
        "host: evil.example",
        "host: localhost\r\norigin: https://evil.example",
        "host: localhost\r\nsec-fetch-site: cross-site",
    ] {
        for path in ["/", "/events", "/other"] {
            let head = format!("GET {path} HTTP/1.1\r\n{head}");
            let answer = backend.ask_status(&head).await;
            assert_eq!(answer.status, 403, "{head}: {}", answer.text());
        }
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
