//! `--status`: what the page shows beside what the service saw.

use std::{
    fs,
    io::{Read as _, Write as _},
    process::Command,
};

use serde_json::Value;
use tds_sim::{Config, Faults};
use tokio::time::{Duration, sleep, timeout};

use crate::{
    Bench, HANGS, end, err, out, output, piped,
    serving::Serving,
    skipped, text,
    upstream::{Upstream, late},
};

/// A gateway with a page, after twenty calls that were served and two that were not.
async fn gateway(bench: &Bench) -> Serving {
    let arguments = [
        "gateway",
        "--listen",
        "127.0.0.1:0",
        "--status",
        "127.0.0.1:0",
        "--deadline",
        "1m",
    ];
    let gateway = Serving::start(bench.tds(&arguments));
    for n in 0..20 {
        let answer = gateway.get(&format!("/v1/live/bus-{n}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(gateway.get("/nothing?q=canary").await.status, 404);
    let mut faults = Faults::default();
    faults.data.push("503".parse().expect("a fault"));
    bench.server.sim().set_faults(faults);
    for _ in 0..2 {
        assert_eq!(gateway.get("/v1/live/bus?q=canary").await.status, 503);
    }
    gateway
}

#[tokio::test]
async fn the_numbers_of_the_page_are_those_of_the_ledger() {
    let bench = Bench::new("status-json", Config::default()).await;
    let gateway = gateway(&bench).await;
    let answer = gateway.status("/status.json").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let shown: Value = serde_json::from_slice(&answer.body).expect("JSON");
    let number = |name: &str| shown[name].as_u64();
    let seen = bench.server.ledger().summary();
    assert_eq!(
        number("granted"),
        Some(seen.data_calls + seen.token_posts),
        "{shown}"
    );
    assert_eq!(number("tokens"), Some(seen.tokens_issued));
    assert!(number("most_in_a_second") >= Some(seen.largest_second));
    assert!(number("sockets") >= Some(seen.sockets_open), "{shown}");
    assert!(number("sockets") <= Some(seen.peak_sockets + 1), "{shown}");
    assert_eq!(
        (number("quota"), number("most_sockets")),
        (Some(50), Some(60))
    );
    let refusals = shown["refusals"].as_array().expect("a list");
    // The client's own tries are within one refusal, and what is not there is its caller's slip.
    assert_eq!(refusals.len(), 2, "{shown}");
    assert!(seen.by_status.get(&503) >= Some(&2));
    for refusal in refusals {
        assert_eq!(refusal["kind"], "unavailable");
        assert_eq!(refusal["status"], 503);
        assert!(refusal["seconds_ago"].as_f64() >= Some(0.0));
    }
    let age = shown["token_age_seconds"].as_f64().expect("a token");
    let left = shown["token_life_seconds"].as_f64().expect("a token");
    let next = shown["token_next_seconds"].as_f64().expect("a renewal");
    assert!(age + left <= 86_400.0 && next < left, "{shown}");
    // All of it, including the texts.
    let all = answer.text();
    for secret in ["canary", "eyJ", bench.server.client_secret()] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
}

#[tokio::test]
async fn the_page_shows_how_many_calls_wait_and_for_what() {
    let mut config = Config::default();
    config.faults.before_head = "3600s".parse().expect("a delay");
    let bench = Bench::new("status-waits", config).await;
    let list = bench.path("resources");
    let lines: String = (0..90).map(|n| format!("/v1/live/bus-{n}\n")).collect();
    fs::write(&list, lines).expect("a file");
    let arguments = [
        "backend",
        "--list",
        text(&list),
        "--listen",
        "127.0.0.1:0",
        "--status",
        "127.0.0.1:0",
        "--deadline",
        "1h",
    ];
    let backend = Serving::start(bench.tds(&arguments));
    let mut users = Vec::new();
    for n in 0..90 {
        let head = format!("GET /v1/live/bus-{n} HTTP/1.1\r\nhost: localhost");
        users.push(backend.send(&head).await);
    }
    bench.seen(|seen| seen.in_progress == 50).await;
    let shown = timeout(HANGS, async {
        loop {
            let answer = backend.status("/status.json").await;
            let shown: Value = serde_json::from_slice(&answer.body).expect("JSON");
            if shown["calls"] == 90 && shown["waiting"] == 40 {
                return shown;
            }
        }
    });
    let shown = shown.await.expect("they wait");
    assert_eq!(shown["in_flight"], 50, "{shown}");
    let waits_for = shown["waits_for"].as_str().expect("they wait");
    assert_eq!(waits_for, "the rate limit", "{shown}");
    assert_eq!(
        shown["sockets"].as_u64(),
        Some(bench.server.ledger().summary().sockets_open),
        "{shown}"
    );
    if skipped("chromium") {
        return;
    }
    let page = Page::open(
        &bench,
        &format!("http://{}/", backend.status.expect("it has one")),
    )
    .await;
    assert_eq!(
        (page.shows("waiting"), page.shows("in_flight")),
        ("40", "50"),
        "{}",
        page.0
    );
    assert_eq!(page.shows("waits_for"), "the rate limit", "{}", page.0);
}

/// A page as a browser has drawn it.
struct Page(String);

impl Page {
    async fn open(bench: &Bench, url: &str) -> Self {
        let mut chromium = Command::new("chromium");
        chromium.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-proxy-server",
            "--virtual-time-budget=5000",
            "--dump-dom",
        ]);
        chromium.arg(format!(
            "--user-data-dir={}",
            bench.path("profile").display()
        ));
        chromium.arg(url);
        Self(out(&end(piped(chromium)).await))
    }

    fn shows(&self, id: &str) -> &str {
        let (_, rest) = self
            .0
            .split_once(&format!("id=\"{id}\""))
            .expect("it is there");
        let (_, rest) = rest.split_once('>').expect("HTML");
        rest.split_once('<').expect("HTML").0
    }
}

#[tokio::test]
async fn a_browser_shows_the_rate_and_the_token_while_calls_go_on() {
    if skipped("chromium") {
        return;
    }
    let bench = Bench::new("status-rate", Config::default()).await;
    let arguments = [
        "gateway",
        "--listen",
        "127.0.0.1:0",
        "--status",
        "127.0.0.1:0",
    ];
    let gateway = Serving::start(bench.tds(&arguments));
    assert_eq!(gateway.get("/v1/live/bus").await.status, 200);
    let status = gateway.status.expect("it has one");
    // The browser's clock stands still while it reads, so that each look takes a second of the gateway's.
    let slow = Upstream::start(move |head, _| {
        let path = head.split(' ').nth(1).expect("a path");
        let delay = u64::from(path == "/status.json");
        late(Vec::new(), delay);
        let mut stream = std::net::TcpStream::connect(status).expect("it listens");
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        answer
    });
    let url = format!("{}/", slow.url);
    let page = Page::open(&bench, &url);
    let calls = async {
        loop {
            assert_eq!(gateway.get("/v1/live/bus").await.status, 200);
            sleep(Duration::from_millis(50)).await;
        }
    };
    let page = tokio::select! {
        page = page => page,
        () = calls => return,
    };
    let number = |id: &str| {
        let text = page.shows(id).trim_end_matches(" s").trim_end_matches(" h");
        text.parse::<f64>()
            .unwrap_or_else(|_| panic!("{id}: {}", page.0))
    };
    let rate = number("rate");
    assert!(rate > 0.0 && rate <= 50.0, "{rate}");
    assert!(page.shows("token_age").ends_with(" s"), "{}", page.0);
    assert!(number("token_age") >= 1.0);
    assert!(page.shows("token_next").ends_with(" h"), "{}", page.0);
    assert!(number("token_next") > 0.0 && number("token_next") < 24.0);
    assert_eq!(page.shows("token_error"), "none");
    assert_eq!(page.shows("waits_for"), "nothing", "{}", page.0);
    // It has shown what the ledger has.
    let seen = bench.server.ledger().summary();
    let granted = number("granted");
    assert!(
        granted > 20.0
            && granted
                <= f64::from(u32::try_from(seen.data_calls + seen.token_posts).expect("few"))
    );
}

#[tokio::test]
async fn the_page_is_for_this_machine_and_brings_all_it_needs() {
    let bench = Bench::new("status-page", Config::default()).await;
    let list = bench.path("resources");
    fs::write(&list, "/v1/live/bus\n").expect("a file");
    let backend = ["backend", "--list", text(&list), "--listen", "127.0.0.1:0"];
    let gateway = ["gateway", "--listen", "127.0.0.1:0"];
    for job in [&backend[..], &gateway] {
        let remote = [job, &["--status", "0.0.0.0:0"]].concat();
        let run = bench.run(&remote).await;
        assert_eq!(run.status.code(), Some(2), "{}", err(&run));
        assert!(err(&run).contains("--status 0.0.0.0:0"), "{}", err(&run));

        let local = [job, &["--status", "127.0.0.1:0"]].concat();
        let server = Serving::start(bench.tds(&local));
        let page = server.status("/").await;
        assert_eq!(page.status, 200);
        assert!(
            page.head
                .contains("\r\ncontent-security-policy: default-src 'none';"),
            "{}",
            page.head
        );
        let html = page.text();
        assert!(!html.contains("://") && !html.contains(" src="), "{html}");
        assert!(html.contains("<noscript>"), "{html}");
        for head in [
            "host: evil.example",
            "host: localhost\r\norigin: https://evil.example",
            "host: localhost\r\nsec-fetch-site: cross-site",
        ] {
            for path in ["/", "/status.json"] {
                let head = format!("GET {path} HTTP/1.1\r\n{head}");
                let answer = server.ask_status(&head).await;
                assert_eq!(answer.status, 403, "{head}: {}", answer.text());
            }
        }
        // The address for users does not serve it either.
        assert_ne!(server.get("/status.json").await.status, 200);
    }

    let mut keyed = bench.tds(&[
        "gateway",
        "--listen",
        "127.0.0.1:0",
        "--status",
        "0.0.0.0:0",
        "--allow-remote",
    ]);
    keyed.env("TDS_GATEWAY_KEY", "0123456789abcdef");
    let keyed = Serving::start(keyed);
    assert_eq!(keyed.status("/status.json").await.status, 401);
    let head = "GET / HTTP/1.1\r\nhost: a\r\nauthorization: Bearer 0123456789abcdef";
    assert_eq!(keyed.ask_status(head).await.status, 200);
}

#[tokio::test]
async fn a_browser_shows_what_the_ledger_has() {
    let bench = Bench::new("status-browser", Config::default()).await;
    let gateway = gateway(&bench).await;
    if skipped("chromium") {
        return;
    }
    let page = Page::open(
        &bench,
        &format!("http://{}/", gateway.status.expect("it has one")),
    )
    .await;
    let (dom, shown) = (&page.0, |id: &str| page.shows(id).to_owned());
    let seen = bench.server.ledger().summary();
    assert_eq!(shown("ready"), "ready", "{dom}");
    assert_eq!(
        shown("granted"),
        (seen.data_calls + seen.token_posts).to_string(),
        "{dom}"
    );
    assert_eq!(shown("tokens"), seen.tokens_issued.to_string());
    // The service is at rest, as two reads of it show.
    assert_eq!((&*shown("rate"), &*shown("quota")), ("0.0", "50"));
    assert_eq!(shown("most_sockets"), "60");
    let sockets: u64 = shown("sockets").parse().expect("a number");
    assert!(
        (seen.sockets_open..=seen.peak_sockets + 1).contains(&sockets),
        "{sockets}: {seen:?}"
    );
    let (_, refusals) = dom.split_once("id=\"refusals\"").expect("it is there");
    let (refusals, _) = refusals.split_once("</tbody>").expect("HTML");
    assert_eq!(
        refusals.matches("<td>unavailable</td><td>503</td>").count(),
        2,
        "{dom}"
    );
    assert!(!dom.contains("canary") && !dom.contains("eyJ"), "{dom}");
}

#[tokio::test]
async fn an_address_that_is_taken_is_told_before_anything_is_asked() {
    let bench = Bench::new("status-taken", Config::default()).await;
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = held.local_addr().expect("its address").to_string();
    for arguments in [
        ["gateway", "--listen", &taken, "--status", "127.0.0.1:0"],
        ["gateway", "--listen", "127.0.0.1:0", "--status", &taken],
    ] {
        let run = output(bench.tds(&arguments)).await;
        assert_eq!(run.status.code(), Some(2), "{}", err(&run));
        assert!(err(&run).contains(&taken), "{}", err(&run));
    }
    assert_eq!(bench.server.ledger().summary().token_posts, 0);
}
