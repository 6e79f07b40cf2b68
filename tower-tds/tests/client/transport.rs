//! Connections with the user's own connector, and with the proxies of the environment.

use std::{
    env,
    future::ready,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use http::{Request, Uri};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tds_sim::{Config, Sim};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, UnixStream},
    task::JoinSet,
};
use tower::{ServiceExt, service_fn as connector};
use tower_tds::{BuildError, Builder, Client, Credentials, Limits, layers::errors::RetryLayer};

/// The addresses that a connector was called with, in order.
type Asked = Arc<Mutex<Vec<Uri>>>;

fn https(sim: &Sim) -> Builder {
    let credentials = Credentials::new(sim.client_id(), sim.client_secret());
    let (auth, data) = ("https://auth.example.org", "https://data.example.org");
    Client::builder(auth, data, credentials.expect("usable"))
}

#[cfg(unix)]
#[tokio::test]
async fn custom_connector_makes_all_connections_within_the_limit() {
    let (sim, asked) = (Sim::new(Config::default()), Asked::default());
    let (serves, notes) = (sim.clone(), Arc::clone(&asked));
    let pipes = connector(move |target: Uri| {
        notes.lock().expect("no panic under it").push(target);
        let sockets = UnixStream::pair();
        let (here, there) = sockets.expect("two ends");
        let sim = serves.clone();
        tokio::spawn(async move {
            let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let _counted = sim.connect(peer);
            let answer = service_fn(|request: Request<Incoming>| sim.clone().oneshot(request));
            let there = TokioIo::new(there);
            drop(http1::Builder::new().serve_connection(there, answer).await);
        });
        ready(Ok::<_, io::Error>(TokioIo::new(here)))
    });
    let limits = Limits::default().connections(5.try_into().expect("not zero"));
    let client = https(&sim).limits(limits).connector(pipes);
    let client = client.build().expect("a connector");
    let mut calls = JoinSet::new();
    for _ in 0..40 {
        let call = client.get("/v1/live/bus");
        calls.spawn(async move { call.await?.bytes().await });
    }
    for body in calls.join_all().await {
        assert!(body.expect("a whole body").starts_with(b"{\"name\""));
    }
    let seen = sim.ledger().summary();
    assert_eq!((seen.token_posts, seen.complete), (1, 40));
    // One of the five is the token's.
    assert!(seen.peak_sockets <= 5, "{seen:?}");
    assert!(client.limiter().snapshot().connections > 0);
    let asked = asked.lock().expect("no panic under it");
    let hosts: Vec<_> = asked.iter().filter_map(Uri::host).collect();
    assert_eq!(hosts.first(), Some(&"auth.example.org"));
    assert!(hosts.iter().skip(1).all(|host| *host == "data.example.org"));
}

#[test]
fn build_refuses_settings_that_a_connector_ignores() {
    let sim = Sim::new(Config::default());
    let given = || https(&sim).connector(HttpConnector::new());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("they are known")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    for ignored in [
        given().root_certificate(b"any"),
        given().tls(tls),
        given().proxy("http://127.0.0.1:3128"),
        given().env_proxies(),
    ] {
        let error = ignored.build().expect_err("one of them is ignored");
        assert!(error.to_string().contains("connector"), "{error}");
    }
    given().build().expect("a connector");
    // A connector does not allow plain http to another machine.
    let credentials = Credentials::new("id", "s3cr3t").expect("usable");
    let data = "http://data.example.org";
    let plain = Client::builder("https://auth.example.org", data, credentials);
    let plain = plain.connector(HttpConnector::new()).build();
    plain.expect_err("it would send the token in clear");
}

#[test]
fn no_password_of_an_address_is_printed() {
    let credentials = || Credentials::new("id", "s3cr3t").expect("usable");
    for proxy in [
        "http://ann:CANARY@proxy:3128",
        "http://ann:p@CANARY@proxy:3128",
    ] {
        let builder = Client::builder(
            "https://ann:CANARY@auth.example.org/CANARY?CANARY",
            "https://ann:CANARY@data.example.org:8443#CANARY",
            credentials(),
        );
        let builder = builder.proxy(proxy);
        let mut printed = format!("{builder:?} {builder:#?}");
        assert!(printed.contains("data.example.org"), "{printed}");
        let error = builder.build().expect_err("an address with a password");
        printed.push_str(&format!("{error} {error:?}"));
        assert!(!printed.contains("CANARY"), "{printed}");
    }
    let unreadable = Client::builder("https://CANARY@a b", "ann:CANARY@host", credentials());
    let mut printed = format!("{unreadable:?}");
    let error = unreadable.build().expect_err("no address");
    printed.push_str(&format!("{error} {error:?}"));
    assert!(!printed.contains("CANARY"), "{printed}");
}

/// The variable that selects what the other process builds.
const CASE: &str = "TDS_TEST_CASE";

/// Builds in another process, with these variables alone, and returns its output.
fn built_with(case: &str, variables: &[(&str, &str)]) -> String {
    let mut child = Command::new(env::current_exe().expect("this test"));
    child.args([
        "--exact",
        "client::transport::child_builds_a_client_from_its_environment",
        "--nocapture",
    ]);
    child.env_clear().env(CASE, case);
    let ran = child.envs(variables.iter().copied()).output();
    String::from_utf8_lossy(&ran.expect("it runs").stdout).into_owned()
}

async fn in_the_child(case: &str) -> Result<String, BuildError> {
    let sim = Sim::new(Config::default());
    let builder = match case {
        "roots" => https(&sim),
        "loopback" => {
            let credentials = Credentials::new(sim.client_id(), sim.client_secret());
            let (auth, data) = ("http://127.0.0.1:1", "http://127.0.0.1:2");
            Client::builder(auth, data, credentials.expect("usable")).loopback_http()
        }
        _ => https(&sim).env_proxies(),
    };
    let client = builder.build()?;
    if case == "proxies" {
        let call = client.get("/").deadline(Duration::from_secs(10)).await;
        return Ok(call.expect_err("no such host").to_string());
    }
    Ok(String::from("it is built"))
}

#[tokio::test]
async fn child_builds_a_client_from_its_environment() {
    if let Ok(case) = env::var(CASE) {
        match in_the_child(&case).await {
            Ok(said) => println!("SAID {said}"),
            Err(error) => println!("SAID {error}"),
        }
    }
}

#[test]
#[cfg_attr(
    any(windows, target_vendor = "apple"),
    ignore = "the platform has its own store there, whatever the variables name"
)]
fn missing_root_certificates_are_an_error() {
    let empty = env::current_exe().expect("this test, which is no PEM");
    let empty = empty.to_str().expect("its path is text");
    for file in ["/nowhere/roots.pem", empty] {
        let named = [("SSL_CERT_FILE", file)];
        assert!(built_with("loopback", &named).contains("SAID it is built"));
        let said = built_with("roots", &named);
        assert!(said.contains("no root certificates"), "{said}");
    }
}

/// A proxy that requires a password, and the number of times it required one.
fn locked_proxy() -> (String, Arc<AtomicU32>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let asked = Arc::<AtomicU32>::default();
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        while let Ok((mut socket, _)) = listener.accept() {
            // The whole head is in the first packet.
            let read = socket.read(&mut [0; 4_096]).expect("a CONNECT");
            assert!(read > 0);
            count.fetch_add(1, SeqCst);
            let refused = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
            socket.write_all(refused).expect("it reads");
        }
    });
    (url, asked)
}

#[test]
fn client_uses_the_https_proxy_of_its_environment() {
    let (named, asked) = locked_proxy();
    let (other, not_asked) = locked_proxy();
    let (named, other) = (&*named, &*other);
    let cases: [&[(&str, &str)]; 2] = [
        &[("HTTPS_PROXY", named), ("ALL_PROXY", other)],
        &[("all_proxy", named), ("HTTP_PROXY", other)],
    ];
    for (n, case) in (1..).zip(cases) {
        let said = built_with("proxies", case);
        assert!(said.contains("password of the proxy"), "{case:?}: {said}");
        assert_eq!(
            (asked.load(SeqCst), not_asked.load(SeqCst)),
            (n, 0),
            "{case:?}"
        );
    }
    // Both hosts are exempt; the client requests a token first.
    let hosts = "auth.example.org,data.example.org";
    let said = built_with("proxies", &[("HTTPS_PROXY", named), ("NO_PROXY", hosts)]);
    assert!(!said.contains("password of the proxy"), "{said}");
    assert_eq!((asked.load(SeqCst), not_asked.load(SeqCst)), (2, 0));
    // A proxy that expects TLS would get the credentials unencrypted.
    let said = built_with("proxies", &[("https_proxy", "https://ann:s3cr3t@proxy")]);
    assert!(
        said.contains("http://host:port") && !said.contains("s3cr3t"),
        "{said}"
    );
}

#[test]
fn unusable_proxy_of_the_environment_is_an_error_at_build() {
    let (good, asked) = locked_proxy();
    for unusable in [
        ":::bad",
        "http://",
        "http://proxy:99999",
        "ftp://proxy",
        "socks5://proxy",
    ] {
        for case in [
            [("HTTPS_PROXY", unusable), ("ALL_PROXY", &good)],
            [("https_proxy", unusable), ("HTTP_PROXY", &good)],
            [("HTTPS_PROXY", ""), ("ALL_PROXY", unusable)],
        ] {
            let said = built_with("proxies", &case);
            assert!(
                said.contains("SAID the proxy is not usable"),
                "{case:?}: {said}"
            );
        }
        // Plain http to this machine needs no proxy.
        let loopback = built_with("loopback", &[("HTTPS_PROXY", unusable)]);
        assert!(loopback.contains("SAID it is built"), "{loopback}");
    }
    let hosts = "auth.example.org,data.example.org";
    let said = built_with("proxies", &[("HTTPS_PROXY", ":::bad"), ("NO_PROXY", hosts)]);
    assert!(!said.contains("the proxy is not usable"), "{said}");
    // The variable that is read first decides.
    let used = built_with(
        "proxies",
        &[("HTTPS_PROXY", &*good), ("ALL_PROXY", ":::bad")],
    );
    assert!(used.contains("password of the proxy"), "{used}");
    assert_eq!(asked.load(SeqCst), 1);
}

#[tokio::test]
async fn refusal_of_a_proxy_names_it_its_status_and_the_remedy() {
    for (status, remedy) in [
        ("403 Forbidden", "have the proxy allow this host"),
        ("407 Proxy Authentication Required", "password of the proxy"),
        ("502 Bad Gateway", "check that the proxy reaches this host"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let proxy = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                crate::client::server::read(&mut socket)
                    .await
                    .expect("a CONNECT");
                let refused = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                socket
                    .write_all(refused.as_bytes())
                    .await
                    .expect("it reads");
            }
        });
        let once = RetryLayer::new().attempts(NonZeroU32::MIN);
        let client = https(&Sim::new(Config::default()))
            .proxy(&proxy)
            .retry(once);
        let client = client.build().expect("a proxy");
        let error = client.get("/").await.expect_err("there is no tunnel");
        let said = error.to_string();
        for part in [&*proxy, &status[..3], remedy] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

#[tokio::test]
async fn proxy_that_is_none_or_is_not_there_is_named_with_its_setting() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let no_proxy = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            crate::client::server::read(&mut socket)
                .await
                .expect("a CONNECT");
            let greets = socket.write_all(b"SSH-2.0-OpenSSH_9.6\r\n\r\n").await;
            greets.expect("it reads");
        }
    });
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let refuses = format!("http://{}", closed.local_addr().expect("an address"));
    drop(closed);
    for (proxy, says) in [
        (&*no_proxy, "no HTTP proxy"),
        (&*refuses, "cannot be reached: Connection refused"),
        ("http://proxy.invalid:3128", "cannot be reached: "),
    ] {
        let sim = Sim::new(Config::default());
        let client = https(&sim).proxy(proxy).build().expect("a proxy");
        let error = client.get("/").deadline(Duration::from_secs(5)).await;
        let error = error.expect_err("there is no tunnel").to_string();
        for part in [proxy, says, "Builder::proxy"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(!error.contains("certificate"), "{error}");
    }
    let said = built_with("proxies", &[("HTTPS_PROXY", &refuses)]);
    assert!(said.contains("HTTPS_PROXY"), "{said}");
}

/// Files that hold a private key and a certificate, all of them broken.
fn broken_pems() -> Vec<(&'static str, String)> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (key, certificate) = (made.signing_key.serialize_pem(), made.cert.pem());
    let all = format!("{key}{certificate}").repeat(20);
    let lines: Vec<&str> = key.lines().collect();
    vec![
        ("all in one line", all.replace('\n', "")),
        ("all in one line with spaces", all.replace('\n', " ")),
        ("all in one line, escaped", all.replace('\n', "\\n")),
        ("no END line", lines[..lines.len() - 1].join("\n")),
        ("no base64", certificate.replace("MII", "M!I")),
        ("the key alone", key.clone()),
        (
            "a certificate that is none",
            key.replace("PRIVATE KEY", "CERTIFICATE"),
        ),
    ]
}

/// One short line, with no part of the file as text or as byte codes.
fn assert_shows_nothing(of: &str, said: &str, file: &str) {
    assert!(
        said.len() <= 300 && said.lines().count() == 1,
        "{of}: {} bytes: {said}",
        said.len()
    );
    let mut bare = file.to_owned();
    for label in ["-----", "BEGIN ", "END ", "PRIVATE KEY", "CERTIFICATE"] {
        bare = bare.replace(label, "");
    }
    let secret = bare.trim();
    for part in secret.as_bytes().windows(8).take(200) {
        let codes: Vec<_> = part.iter().map(u8::to_string).collect();
        let part = String::from_utf8_lossy(part);
        assert!(
            !said.contains(&*part) && !said.contains(&codes.join(", ")),
            "{of}: {said}"
        );
    }
}

#[test]
fn no_byte_of_a_broken_root_certificate_is_in_the_error() {
    for (of, file) in broken_pems() {
        let credentials = Credentials::new("client", "secret").expect("usable");
        let url = "https://localhost";
        let builder = Client::builder(url, url, credentials).root_certificate(file.as_bytes());
        let error = builder.build().expect_err(of);
        for said in [
            error.to_string(),
            format!("{error:?}"),
            format!("{error:#?}"),
        ] {
            assert!(
                said.starts_with("a root certificate is not usable"),
                "{of}: {said}"
            );
            assert_shows_nothing(of, &said, &file);
        }
    }
}

#[test]
#[cfg_attr(
    any(windows, target_vendor = "apple"),
    ignore = "the platform has its own store there, whatever the variables name"
)]
fn no_byte_of_the_file_of_root_certificates_is_in_the_error() {
    for (n, (of, file)) in broken_pems().into_iter().enumerate() {
        let path = format!("{}/broken-{n}.pem", env!("CARGO_TARGET_TMPDIR"));
        std::fs::write(&path, &file).expect("a place");
        let said = built_with("roots", &[("SSL_CERT_FILE", &path)]);
        let line = said.lines().find_map(|line| line.split_once("SAID "));
        let (_, said) = line.expect("the child says");
        assert!(said.contains("no root certificates"), "{of}: {said}");
        assert_shows_nothing(of, said, &file);
        std::fs::remove_file(&path).expect("it is there");
    }
}
