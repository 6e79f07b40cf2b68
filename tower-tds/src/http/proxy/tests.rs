use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use super::*;

#[test]
fn invalid_proxy_address_is_refused() {
    let target = Uri::from_static("https://data.example.org");
    for url in [
        "proxy:3128",
        "http://proxy",
        "http://[::1]",
        "http://ann:s3cr3t@[::1]:3128",
    ] {
        Proxies::one(url).of(&target).map(drop).expect(url);
    }
    for url in [
        "http://proxy:99999",
        "http://ann:s3cr3t@[::1]:x",
        "http://ann:p^ss@proxy:3128",
        "https://proxy",
        "ftp://proxy",
        "http://a b",
    ] {
        Proxies::one(url).of(&target).map(drop).expect_err(url);
    }
}

#[test]
fn plain_http_goes_through_no_proxy() {
    let target = Uri::from_static("http://127.0.0.1:8080");
    let one = Proxies::one("http://proxy:3128");
    assert!(one.of(&target).expect("it can be read").is_none());
}

#[test]
fn this_machine_is_not_reached_through_the_environments_proxy() {
    let proxies = Proxies::Named(Arc::new(
        Matcher::builder().all("http://proxy:3128").build(),
    ));
    let proxy = |target: &str| {
        let target = target.parse().expect("an address");
        proxies.of(&target).expect("it can be read")
    };
    for here in [
        "https://localhost",
        "https://127.0.0.2:8443",
        "https://[::1]/v1",
    ] {
        assert!(proxy(here).is_none(), "{here}");
    }
    for elsewhere in [
        "https://localhost.example",
        "https://128.0.0.1",
        "https://[::2]",
    ] {
        assert!(proxy(elsewhere).is_some(), "{elsewhere}");
    }
}

/// Asks a proxy that answers with these bytes for a tunnel, and returns its request.
async fn ask(answer: &str) -> (Result<TokioIo<tokio::io::DuplexStream>, BoxError>, String) {
    let (here, mut there) = duplex(4_096);
    let proxy = Proxies::one("http://ann:s3cr3t@proxy:3128");
    let target = Uri::from_static("https://data.example.org/v1");
    let proxy = proxy.of(&target).expect("usable").expect("one");
    let asked = tokio::spawn(async move { tunnel(TokioIo::new(here), &proxy, &target).await });
    let mut head = vec![0; 4_096];
    let length = there.read(&mut head).await.expect("a request");
    head.truncate(length);
    there.write_all(answer.as_bytes()).await.expect("it reads");
    let tunnel = asked.await.expect("no panic");
    (tunnel, String::from_utf8(head).expect("text"))
}

#[tokio::test]
async fn accepted_tunnel_is_returned_after_one_connect() {
    for answer in [
        "HTTP/1.1 200 Connection established\r\n\r\n",
        "HTTP/1.0 200 OK\r\nvia: 1.1 proxy\r\n\r\n",
        "HTTP/1.1 204 OK\r\n\r\n",
    ] {
        let (tunnel, request) = ask(answer).await;
        tunnel.expect(answer);
        assert_eq!(
            request.to_ascii_lowercase(),
            "connect data.example.org:443 http/1.1\r\nhost: data.example.org:443\r\n\
             proxy-authorization: basic yw5uonmzy3izda==\r\n\r\n"
        );
    }
}

#[tokio::test]
async fn refused_tunnel_names_proxy_status_and_remedy() {
    for (status, kind, remedy) in [
        ("403 Forbidden", Kind::Rejected, ALLOW),
        ("405 Method Not Allowed", Kind::Rejected, ALLOW),
        (
            "407 Proxy Authentication Required",
            Kind::Rejected,
            PASSWORD,
        ),
        ("429 Too Many Requests", Kind::Connect, LATER),
        ("502 Bad Gateway", Kind::Connect, LATER),
        ("503 Service Unavailable", Kind::Connect, LATER),
        ("302 Found", Kind::Connect, LATER),
    ] {
        for body in [
            "content-length: 6\r\n\r\n<html>",
            "\r\n<html>",
            "content-length: 99\r\n\r\n<html>",
        ] {
            let (tunnel, _) = ask(&format!("HTTP/1.1 {status}\r\n{body}")).await;
            let error = Error::from(tunnel.map(drop).expect_err(status));
            assert_eq!(
                (error.kind(), error.sent()),
                (kind, Sent::Never),
                "{status}"
            );
            let text = error.to_string();
            let refused = "the proxy http://proxy:3128 refused the tunnel (status ";
            for part in [refused, &status[..3], remedy] {
                assert!(text.contains(part), "{text}");
            }
            assert!(!text.contains("s3cr3t"), "{text}");
        }
    }
}

#[tokio::test]
async fn answer_that_is_no_http_is_an_error() {
    let (tunnel, _) = ask("SSH-2.0-OpenSSH_9.6\r\n\r\n").await;
    tunnel.map(drop).expect_err("it is no proxy");
}
