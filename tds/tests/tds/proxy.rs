//! Proxies on the way to a service with a company's certificate, by the proxy's own record of its tunnels.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::{Arc, Mutex},
    thread,
};

use crate::{
    Bench, ended, err, live, out, output, says,
    upstream::{Upstream, sized},
};

/// A proxy in front of this machine, whatever host a tunnel is for.
struct Proxy {
    url: String,
    tunnels: Arc<Mutex<Vec<String>>>,
}

// === impl Proxy ===

impl Proxy {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        let tunnels = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&tunnels);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, seen) = (stream.expect("a connection"), Arc::clone(&seen));
                thread::spawn(move || tunnel(stream, &seen).unwrap_or_default());
            }
        });
        Self { url, tunnels }
    }

    /// Takes the heads of the tunnels since the last look.
    fn tunnels(&self) -> Vec<String> {
        std::mem::take(&mut *self.tunnels.lock().expect("no panic"))
    }
}

fn tunnel(mut user: TcpStream, seen: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut lines = BufReader::new(user.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if lines.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let port = head.split([':', ' ']).nth(2).unwrap_or_default().to_owned();
    seen.lock().expect("no panic").push(head);
    let service = TcpStream::connect(format!("127.0.0.1:{port}"))?;
    user.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    let (mut from, mut to) = (lines, service.try_clone()?);
    thread::spawn(move || io::copy(&mut from, &mut to).is_ok());
    io::copy(&mut &service, &mut user).map(drop)
}

/// A service with a company's certificate.
async fn secure() -> Bench {
    Bench::with(|config| config.tls = true).await
}

/// A job that reaches the tokens and the data under these names of this machine.
fn at(bench: &Bench, auth: &str, base: &str, line: &str) -> Command {
    let mut run = bench.tds(line);
    let host = |url: &str, host: &str| url.replace("127.0.0.1", host);
    let roots = bench.server.ca_file().expect("it speaks TLS");
    run.env_remove("SSL_CERT_FILE")
        .env("TDS_CA_FILE", roots)
        .env("TDS_AUTH_URL", host(bench.server.auth_url(), auth))
        .env("TDS_BASE_URL", host(bench.server.base_url(), base));
    for name in ["HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "HTTP_PROXY"] {
        run.env_remove(name).env_remove(name.to_lowercase());
    }
    run
}

const FAR: &str = "tds.example";
const GET: &str = "get /v1/live/bus";
const CHECK: &str = "check /v1/live/bus";
const BULK: &str = "bulk --list list --out files";

#[tokio::test]
async fn fresh_user_behind_a_proxy_with_a_companys_ca_gets_all_files_by_the_documented_steps() {
    let (bench, proxy) = (secure().await, Proxy::start());
    let mut log = String::new();
    // Runs the jobs that the README names: check, one response, a list.
    bench.list("/v1/history/{1..40}\t{}.json\n");
    for job in [CHECK, GET, BULK] {
        let mut run = at(&bench, FAR, FAR, job);
        run.env("HTTPS_PROXY", &proxy.url);
        let run = output(run).await;
        ended(&run, 0);
        log += &(out(&run) + &err(&run));
    }
    let through = proxy.url.trim_start_matches("http://");
    for name in ["TDS_AUTH_URL", "TDS_BASE_URL"] {
        let line = format!("proxy: {name} through {through} (environment)\n");
        assert!(log.contains(&line), "{log}");
    }
    assert!(log.contains(&live("bus")), "{log}");
    assert!(log.lines().count() <= 24, "one screen: {log}");
    assert_eq!(bench.summary().by_status, [(200, 42)].into());
    let tunnels = proxy.tunnels();
    assert!(!tunnels.is_empty());
    let is_far = |head: &String| head.starts_with("CONNECT tds.example:");
    assert!(tunnels.iter().all(is_far), "{tunnels:?}");
}

#[tokio::test]
async fn the_proxy_of_the_flag_is_stronger_than_the_environments_and_its_password_is_not_shown() {
    let bench = secure().await;
    let (proxy, other) = (Proxy::start(), Proxy::start());
    let with_password = proxy.url.replace("http://", "http://ann:p4ssw0rd@");
    for host in [FAR, "127.0.0.1"] {
        for is_flag in [true, false] {
            let mut run = at(&bench, host, host, CHECK);
            match is_flag {
                true => run.args(["--proxy", &proxy.url]),
                false => run.env("TDS_PROXY", &with_password),
            };
            run.env("HTTPS_PROXY", &other.url).env("NO_PROXY", "*");
            let run = output(run).await;
            ended(&run, 0);
            let all = out(&run) + &err(&run);
            assert!(!all.contains("p4ssw0rd") && !all.contains("ann"), "{all}");
            assert!(
                all.contains("proxy: TDS_BASE_URL through 127.0.0.1:"),
                "{all}"
            );
            let tunnels = proxy.tunnels();
            assert_eq!(tunnels.len(), 2, "{tunnels:?}");
            let has_password = |head: &String| head.contains("YW5uOnA0c3N3MHJk") != is_flag;
            assert!(tunnels.iter().all(has_password));
            assert_eq!(other.tunnels(), <[String; 0]>::default());
        }
    }
}

#[tokio::test]
async fn this_machine_is_never_reached_through_a_proxy_of_the_environment() {
    let (bench, proxy) = (secure().await, Proxy::start());
    // Each address has its own route.
    let hosts = [
        ("127.0.0.1", "127.0.0.1", 0),
        ("localhost", "localhost", 0),
        (FAR, FAR, 2),
        (FAR, "127.0.0.1", 1),
        ("localhost", FAR, 1),
    ];
    for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        for (auth, base, tunnels) in hosts {
            let mut run = at(&bench, auth, base, CHECK);
            run.env(name, &proxy.url);
            let run = output(run).await;
            ended(&run, 0);
            assert_eq!(proxy.tunnels().len(), tunnels, "{name} {auth} {base}");
            let none = out(&run).matches("through none").count();
            assert_eq!(none, 2 - tunnels, "{}", out(&run));
        }
    }
    // Plain http is for this machine alone.
    let plain = Bench::new().await;
    let mut run = plain.tds(GET);
    run.env("HTTP_PROXY", &proxy.url)
        .env("ALL_PROXY", &proxy.url);
    ended(&output(run).await, 0);
    assert_eq!(proxy.tunnels().len(), 0);
}

#[tokio::test]
async fn a_certificate_of_another_host_is_named_with_its_hosts() {
    let (bench, proxy) = (secure().await, Proxy::start());
    bench.list("/v1/live/bus\n");
    for (auth, base) in [("other.example", FAR), (FAR, "other.example")] {
        for job in [GET, CHECK, BULK] {
            let mut run = at(&bench, auth, base, job);
            run.env("TDS_PROXY", &proxy.url);
            let run = output(run).await;
            ended(&run, 5);
            for host in ["other.example", FAR] {
                says(&run, &format!("\"{host}\""));
            }
        }
    }
}

#[tokio::test]
async fn unusable_proxy_is_refused_before_any_request() {
    let bench = secure().await;
    for url in [
        "https://127.0.0.1:1",
        "socks5://127.0.0.1:1",
        "http://127.0.0.1:x",
    ] {
        for name in ["TDS_PROXY", "HTTPS_PROXY"] {
            let mut run = at(&bench, FAR, FAR, GET);
            run.env(name, url);
            let run = output(run).await;
            ended(&run, 2);
            says(&run, "http://host:port");
        }
    }
    assert_eq!(bench.asked().0, 0);
}

#[tokio::test]
async fn a_proxy_that_refuses_is_to_be_corrected_and_one_that_is_away_is_waited_for() {
    let bench = secure().await;
    let refuses = |status: &'static str| Upstream::start(move |_, _| sized(status, "", b""));
    let proxies = [
        ("407 Proxy Authentication Required", 2, "proxy"),
        ("403 Forbidden", 2, "proxy"),
        ("502 Bad Gateway", 5, ""),
        ("", 5, "check --proxy or TDS_PROXY"),
    ];
    // The token goes through the proxy, or only the data does.
    for (auth, base) in [(FAR, FAR), ("127.0.0.1", FAR)] {
        for (status, code, told) in proxies {
            let proxy = refuses(status);
            let away = "http://127.0.0.1:1".to_owned();
            let url = if status.is_empty() { &away } else { &proxy.url };
            for job in [GET, CHECK] {
                let mut run = at(&bench, auth, base, &format!("{job} --deadline 4s"));
                run.env("TDS_PROXY", url);
                let run = output(run).await;
                ended(&run, code);
                says(&run, told);
                assert!(!err(&run).contains("::"), "{}", err(&run));
            }
        }
    }
}
