//! The page at the admin address: its content without JavaScript, and its script.

use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy, rt::TokioExecutor};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use crate::client::{Client, Got, World};

async fn world() -> World {
    let world = World::new().await;
    world.server.set_quota(Some("9/60s".parse().unwrap()));
    world.status("/v1/live/bus").await;
    world.status_of("/v1/live/%3Cb%3E'?!script!", "wrong").await;
    world
}

/// Gets the address of the admin listener as a program that accepts these types.
async fn admin(world: &World, accept: &str) -> (Got, String) {
    let accept = ("accept", accept.to_owned());
    let got = Client::new().get(world.server.admin_url(), &[accept]).await;
    let got = got.unwrap();
    let text = String::from_utf8(got.body.to_vec()).unwrap();
    (got, text)
}

#[tokio::test]
async fn a_browser_gets_a_page_with_calls_limits_and_buttons_and_curl_the_list() {
    let world = world().await;
    let (got, page) = admin(&world, "text/html,application/xhtml+xml").await;
    assert_eq!(got.header("content-type"), "text/html; charset=utf-8");
    for part in [
        "<tr class=s2>",
        "<tr class=s4>",
        "/v1/live/bus",
        "2 of 50 requests of 127.0.0.1 in the last 1s",
        "of 60 connections of 127.0.0.1",
        "1 of 9 calls of demo-",
        "action=\"/faults\"",
        "action=\"/reset\"",
        "http-equiv=\"refresh\"",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(admin(&world, "*/*").await.1.starts_with("GET /"));
}

#[tokio::test]
async fn what_a_client_sends_is_text_on_the_page() {
    let world = world().await;
    let key = world.server.add_key("<img src=x>").unwrap();
    let token = world.server.token(&key.client_id).unwrap();
    world.status_of("/v1/live/a", &token).await;
    let (_, page) = admin(&world, "text/html").await;
    assert!(page.contains("&lt;img") && !page.contains("<img"), "{page}");
}

#[tokio::test]
async fn a_button_brings_the_browser_back_to_the_page() {
    let world = world().await;
    let request = Request::post(format!("{}/faults", world.server.admin_url()))
        .header("accept", "text/html")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Full::from("fault=503"))
        .unwrap();
    let got = Client::new().send(request).await.unwrap();
    assert_eq!((got.status, got.header("location")), (303, "/"));
    assert_eq!(world.server.faults().data.len(), 1);
}

#[tokio::test]
async fn events_follow_each_call() {
    let world = world().await;
    let client = legacy::Client::builder(TokioExecutor::new()).build_http::<Full<bytes::Bytes>>();
    let url = format!("{}/events", world.server.admin_url());
    let url = url.parse().unwrap();
    let mut events = client.get(url).await.unwrap();
    assert_eq!(events.headers()["content-type"], "text/event-stream");
    let mut next = async || {
        let event = events.frame().await.unwrap().unwrap().into_data().unwrap();
        String::from_utf8(event.to_vec()).unwrap()
    };
    let first = next().await;
    assert!(first.starts_with("data: ") && first.ends_with("\n\n"));
    assert_eq!(first.trim_end().lines().count(), 1);
    world.status("/v1/live/later").await;
    while !next().await.contains("/v1/live/later") {}
    drop(events);
    world.server.shutdown().await;
}

/// Listens in front of `to`, and records all requests.
async fn overheard(to: String) -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (mut from, mut back) = client.into_split();
            let server = TcpStream::connect(&to).await.unwrap();
            let (mut answers, mut requests) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut answers, &mut back).await });
            let all = Arc::clone(&all);
            tokio::spawn(async move {
                let mut piece = [0; 4096];
                while let Ok(read @ 1..) = from.read(&mut piece).await {
                    all.lock().unwrap().extend(&piece[..read]);
                    requests.write_all(&piece[..read]).await.unwrap();
                }
            });
        }
    });
    (format!("http://{address}/"), heard)
}

#[tokio::test]
async fn script_of_the_page_asks_for_the_events_in_chromium() {
    if Command::new("chromium").arg("--version").output().is_err() {
        writeln!(std::io::stderr(), "SKIPPED: there is no chromium").unwrap();
        return;
    }
    let world = world().await;
    let (url, heard) = overheard(world.server.admin_url().replace("http://", "")).await;
    let profile = std::env::temp_dir().join(format!("tds-sim-page-{}", std::process::id()));
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu"]);
    browser.arg(format!("--user-data-dir={}", profile.display()));
    // With a port for a debugger it stays, whenever its script begins.
    browser.args(["--remote-debugging-port=0", &url]);
    browser.stdout(Stdio::null()).stderr(Stdio::null());
    let mut browser = browser.spawn().unwrap();
    let asks = async || {
        let heard = heard.lock().unwrap();
        String::from_utf8_lossy(&heard).contains("GET /events HTTP/1.1")
    };
    let waited = timeout(Duration::from_secs(60), async {
        while !asks().await {
            sleep(Duration::from_millis(20)).await;
        }
    });
    let waited = waited.await;
    browser.kill().unwrap();
    browser.wait().unwrap();
    waited.expect("its script asks for the events");
    drop(fs::remove_dir_all(profile));
}
