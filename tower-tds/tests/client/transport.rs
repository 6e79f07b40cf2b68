//! The proxies and the roots of the environment, and proxies that refuse.

use std::{
    env,
    process::Command,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use tower_tds::{
    BuildError, Builder, Client, Kind,
    layers::errors::{RetryLayer, Sent},
};

use crate::client::{
    raw::{Act, Raw, answer, say},
    world::{Built as _, count, https, secret},
};

#[test]
fn no_password_of_an_address_is_printed() {
    for proxy in [
        "http://ann:CANARY@proxy:3128",
        "http://ann:p@CANARY@proxy:3128",
    ] {
        let builder = Client::builder(
            "https://ann:CANARY@auth.example.org/CANARY?CANARY",
            "https://ann:CANARY@data.example.org:8443#CANARY",
            secret(),
        );
        let builder = builder.proxy(proxy);
        let mut printed = format!("{builder:?} {builder:#?}");
        assert!(printed.contains("data.example.org"), "{printed}");
        let error = builder.build().expect_err("an address with a password");
        printed.push_str(&format!("{error} {error:?}"));
        assert!(!printed.contains("CANARY"), "{printed}");
    }
    let unreadable = Client::builder("https://CANARY@a b", "ann:CANARY@host", secret());
    let mut printed = format!("{unreadable:?}");
    let error = unreadable.build().expect_err("no address");
    printed.push_str(&format!("{error} {error:?}"));
    assert!(!printed.contains("CANARY"), "{printed}");
}

/// The variable that selects what the other process builds.
const CASE: &str = "TDS_TEST_CASE";

/// Builds in another process, with these variables alone, and returns its output.
pub(crate) fn built_with(case: &str, variables: &[(&str, &str)]) -> String {
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
    let builder = match case {
        "settings" => Builder::from_env()?,
        "roots" => https(secret()),
        "loopback" => {
            let (auth, data) = ("http://127.0.0.1:1", "http://127.0.0.1:2");
            Client::builder(auth, data, secret()).env_proxies()
        }
        "here" => {
            let (auth, data) = ("https://localhost:1", "https://127.0.0.2:1");
            Client::builder(auth, data, secret()).env_proxies()
        }
        _ => https(secret()).env_proxies(),
    };
    let client = builder.build()?;
    if ["here", "proxies"].contains(&case) {
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
fn all_missing_variables_are_named_at_once() {
    let [auth, base] = ["TDS_AUTH_URL", "TDS_BASE_URL"].map(|name| (name, "http://127.0.0.1:1"));
    let (id, secret) = (("TDS_CLIENT_ID", "id"), ("TDS_CLIENT_SECRET", "s3cr3t"));
    let file = ("TDS_CLIENT_SECRET_FILE", "/nowhere");
    let either = "TDS_CLIENT_SECRET (or TDS_CLIENT_SECRET_FILE)";
    for (variables, said) in [
        // An empty one counts as not set.
        (
            &[auth, ("TDS_BASE_URL", " ")][..],
            format!("not set in the environment: TDS_BASE_URL, TDS_CLIENT_ID, {either}\n"),
        ),
        (
            &[base, secret],
            "not set in the environment: TDS_AUTH_URL, TDS_CLIENT_ID\n".to_owned(),
        ),
        (
            &[auth, base, id, secret, file],
            format!("{} and {} are both set", secret.0, file.0),
        ),
        (&[auth, base, id, secret], "it is built".to_owned()),
        (&[auth, base, id, file], "it is built".to_owned()),
    ] {
        let printed = built_with("settings", variables);
        assert!(
            printed.contains(&format!("SAID {said}")),
            "{variables:?}: {printed}"
        );
    }
}

/// A proxy that requires a password.
async fn locked_proxy() -> Raw {
    Raw::saying(answer("407 Proxy Authentication Required", "")).await
}

/// Both hosts of the child.
const HOSTS: &str = "auth.example.org,data.example.org";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_uses_the_https_proxy_of_its_environment() {
    let (proxy, not_asked) = (locked_proxy().await, locked_proxy().await);
    let (named, other) = (&*proxy.url, &*not_asked.url);
    let cases: [&[(&str, &str)]; 3] = [
        &[("HTTPS_PROXY", named), ("ALL_PROXY", other)],
        &[("all_proxy", named), ("HTTP_PROXY", other)],
        // The variable that is read first decides.
        &[("HTTPS_PROXY", named), ("ALL_PROXY", ":::bad")],
    ];
    for (n, case) in (1..).zip(cases) {
        let said = built_with("proxies", case);
        assert!(said.contains("password of the proxy"), "{case:?}: {said}");
        let asked = (proxy.calls().len(), not_asked.calls().len());
        assert_eq!(asked, (n, 0), "{case:?}");
    }
    // Both hosts are exempt, or are this machine; the client requests a token first.
    let exempt = [("HTTPS_PROXY", named), ("NO_PROXY", HOSTS)];
    for (case, variables) in [("proxies", &exempt[..]), ("here", &exempt[..1])] {
        let said = built_with(case, variables);
        assert!(said.contains("SAID POST https://"), "{said}");
        assert!(!said.contains("password of the proxy"), "{said}");
    }
    assert_eq!(proxy.calls().len(), 3);
    // A proxy that expects TLS would get the credentials unencrypted.
    let said = built_with("proxies", &[("https_proxy", "https://ann:s3cr3t@proxy")]);
    assert!(said.contains("http://host:port"), "{said}");
    assert!(!said.contains("s3cr3t"), "{said}");
}

#[test]
fn unusable_proxy_of_the_environment_is_an_error_at_build() {
    let good = "http://127.0.0.1:1";
    for case in [
        [("HTTPS_PROXY", ":::bad"), ("ALL_PROXY", good)],
        [("HTTPS_PROXY", "http://"), ("ALL_PROXY", good)],
        [("https_proxy", "http://proxy:99999"), ("HTTP_PROXY", good)],
        [("HTTPS_PROXY", "socks5://proxy"), ("ALL_PROXY", good)],
        [("HTTPS_PROXY", ""), ("ALL_PROXY", ":::bad")],
    ] {
        let said = built_with("proxies", &case);
        let is_told = said.contains("SAID the proxy is not usable");
        assert!(is_told, "{case:?}: {said}");
        // Plain http to this machine needs no proxy.
        let loopback = built_with("loopback", &case);
        assert!(loopback.contains("SAID it is built"), "{loopback}");
    }
    let said = built_with("proxies", &[("HTTPS_PROXY", ":::bad"), ("NO_PROXY", HOSTS)]);
    assert!(!said.contains("the proxy is not usable"), "{said}");
}

#[tokio::test]
async fn refusal_of_a_proxy_names_it_its_status_and_the_remedy() {
    let allow = "have the proxy allow this host";
    let later = "check that the proxy reaches this host";
    let length = "content-length: 6\r\n\r\n<html>";
    let open = "\r\n<html>";
    let cut = "content-length: 99\r\n\r\n<html>";
    for (status, kind, remedy, body) in [
        ("403 Forbidden", Kind::Rejected, allow, open),
        ("405 Method Not Allowed", Kind::Rejected, allow, cut),
        ("407 No", Kind::Rejected, "password of the proxy", length),
        ("429 Too Many Requests", Kind::Connect, later, open),
        ("502 Bad Gateway", Kind::Connect, later, cut),
        ("302 Found", Kind::Connect, later, cut),
    ] {
        let raw = Raw::saying(format!("HTTP/1.1 {status}\r\n{body}")).await;
        let proxy = raw.url.replace("http://", "http://ann:s3cr3t@");
        let once = RetryLayer::new().attempts(count(1));
        // Plain http to this machine goes through no proxy, so the token comes.
        let tokens = Raw::saying("").await;
        let data = tokens.builder_of("https://data.example.org");
        let error = data.proxy(&proxy).retry(once).built().get("/").await;
        let error = error.expect_err("there is no tunnel");
        assert_eq!((error.kind(), error.sent()), (kind, Sent::Never), "{error}");
        let said = error.to_string();
        for part in [&*raw.url, &format!("(status {}", &status[..3]), remedy] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("s3cr3t"), "{said}");
        assert_eq!(tokens.seen(), ["POST"]);
    }
}

#[tokio::test]
async fn deadline_in_the_wait_after_a_failure_names_the_failure() {
    let asked = AtomicU32::new(0);
    let proxy = Raw::start(move |_| match asked.fetch_add(1, SeqCst) {
        0 => vec![say("SSH-2.0-OpenSSH_9.6\r\n\r\n")],
        _ => vec![Act::Wait(Duration::from_secs(600))],
    });
    let proxy = proxy.await;
    let client = https(secret()).proxy(&proxy.url).built();
    let error = client.get("/").deadline(Duration::from_secs(10)).await;
    let error = error.expect_err("there is no tunnel").to_string();
    for part in ["waiting for a token", &proxy.url, "no HTTP proxy"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxy_that_is_none_or_is_not_there_is_named_with_its_setting() {
    let no_proxy = Raw::saying("SSH-2.0-OpenSSH_9.6\r\n\r\n").await;
    // A port that is free now may be another test's server a moment later.
    let refuses = "http://127.0.0.1:1";
    for (proxy, says) in [
        (&*no_proxy.url, "no HTTP proxy"),
        (refuses, "cannot be reached: Connection refused"),
        ("http://proxy.invalid:3128", "cannot be reached: "),
    ] {
        let client = https(secret()).proxy(proxy).built();
        let error = client.get("/").deadline(Duration::from_secs(5)).await;
        let error = error.expect_err("there is no tunnel").to_string();
        for part in [proxy, says, "Builder::proxy"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(!error.contains("certificate"), "{error}");
        // A connect that was refused, or whose host is unknown, counts no longer.
        let open = client.limiter().snapshot().connections;
        assert!(open == 0 || says == "no HTTP proxy", "{proxy}: {open}");
    }
    let said = built_with("proxies", &[("HTTPS_PROXY", refuses)]);
    assert!(said.contains("HTTPS_PROXY"), "{said}");
}
