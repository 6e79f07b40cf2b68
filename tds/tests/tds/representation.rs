//! HTTP as users of a backend expect it: conditions, ranges, codings, ages and headers, by what a service that writes every byte of its
//! answers has seen.

use std::{fs, io::Read as _};

use flate2::read::GzDecoder;
use tds_sim::Config;
use tokio::time::{Duration, sleep, timeout};

use crate::{
    Bench, HANGS,
    serving::{Answer, Serving},
    text,
    upstream::{Upstream, answer},
};

const DATE: &str = "Fri, 27 Nov 2026 10:00:00 GMT";

/// A text that can be coded.
fn long() -> Vec<u8> {
    (0..2_000)
        .flat_map(|n| format!("{{\"line\":{n}}}\n").into_bytes())
        .collect()
}

/// A backend in front of a service with these headers for each of its two paths.
async fn serving(name: &str, headers: [String; 2], more: &[&str]) -> (Bench, Upstream, Serving) {
    let bench = Bench::new(name, Config::default()).await;
    let upstream = Upstream::start(move |head, nth| {
        let headers = &headers[usize::from(head.starts_with("GET /b "))];
        let body = long();
        let headers = format!(
            "{headers}content-length: {}\r\nx-nth: {nth}\r\n",
            body.len()
        );
        answer("200 OK", &headers, &body)
    });
    let list = bench.path("resources");
    fs::write(&list, "/a\n/b\n").expect("a file");
    let arguments = [
        "backend",
        "--list",
        text(&list),
        "--listen",
        "127.0.0.1:0",
        "--base-url",
        &upstream.url,
    ];
    let backend = Serving::start(bench.tds(&[&arguments[..], more].concat()));
    (bench, upstream, backend)
}

fn typed(more: &str) -> String {
    format!("content-type: application/json\r\n{more}")
}

async fn ask(backend: &Serving, path: &str, more: &str) -> Answer {
    let more = if more.is_empty() {
        String::new()
    } else {
        format!("\r\n{more}")
    };
    backend
        .ask(&format!("GET {path} HTTP/1.1\r\nhost: localhost{more}"))
        .await
}

#[tokio::test]
async fn user_who_has_the_response_gets_a_304_and_one_who_wants_a_part_gets_it() {
    let headers = [
        typed(&format!(
            "etag: \"v1\"\r\nlast-modified: {DATE}\r\ncache-control: max-age=60\r\n"
        )),
        typed("etag: W/\"w1\"\r\n"),
    ];
    let (_bench, upstream, backend) = serving("repr-known", headers, &["--fresh", "1h"]).await;
    let body = long();
    let length = body.len();
    for (path, asked, status) in [
        ("/a", "if-none-match: \"v1\"", 304),
        ("/a", "if-none-match: \"other\", W/\"v1\"", 304),
        ("/a", "if-none-match: *", 304),
        ("/a", "if-none-match: \"other\"", 200),
        ("/a", &format!("if-modified-since: {DATE}"), 304),
        (
            "/a",
            "if-modified-since: Fri, 27 Nov 2026 09:59:59 GMT",
            200,
        ),
        // If both are there, the tag decides.
        (
            "/a",
            &format!("if-none-match: \"other\"\r\nif-modified-since: {DATE}"),
            200,
        ),
        ("/b", "if-none-match: W/\"w1\"", 304),
        ("/b", &format!("if-modified-since: {DATE}"), 200),
    ] {
        let got = ask(&backend, path, asked).await;
        assert_eq!(got.status, status, "{asked}: {}", got.head);
        assert_eq!(
            got.body.len(),
            if status == 304 { 0 } else { length },
            "{asked}"
        );
        let tag = if path == "/a" {
            "etag: \"v1\""
        } else {
            "etag: w/\"w1\""
        };
        assert!(
            got.head.contains(tag) && got.head.contains("age: "),
            "{}",
            got.head
        );
    }
    let last = length - 1;
    for (asked, status, start, end) in [
        ("range: bytes=0-9", 206, 0, 9),
        ("range: bytes=5-5", 206, 5, 5),
        ("range: bytes=100-", 206, 100, last),
        ("range: bytes=-7", 206, length - 7, last),
        ("range: bytes=10-99999999", 206, 10, last),
        ("range: bytes=0-9\r\nif-range: \"v1\"", 206, 0, 9),
        (&format!("range: bytes=0-9\r\nif-range: {DATE}"), 206, 0, 9),
        ("range: bytes=0-9\r\nif-range: \"other\"", 200, 0, last),
        ("range: bytes=0-1,5-6", 200, 0, last),
        ("range: lines=0-1", 200, 0, last),
        ("range: bytes=9-5", 416, 0, 0),
        (&format!("range: bytes={length}-"), 416, 0, 0),
        (
            "range: bytes=18446744073709551615-18446744073709551615",
            416,
            0,
            0,
        ),
    ] {
        let got = ask(&backend, "/a", asked).await;
        assert_eq!(got.status, status, "{asked}: {}", got.head);
        match status {
            416 => assert!(
                got.head
                    .contains(&format!("content-range: bytes */{length}")),
                "{}",
                got.head
            ),
            _ => assert_eq!(got.body, body[start..=end], "{asked}"),
        }
        let range = format!("content-range: bytes {start}-{end}/{length}\r\n");
        assert_eq!(
            got.head.contains(&range),
            status == 206,
            "{asked}: {}",
            got.head
        );
    }
    assert_eq!(upstream.heads().len(), 2, "one call for each path");
}

#[tokio::test]
async fn text_is_coded_once_for_all_users_with_a_tag_of_its_own() {
    let headers = [
        typed("etag: \"v1\"\r\nvary: Accept-Encoding\r\n"),
        "content-type: image/png\r\netag: \"p\"\r\n".to_owned(),
    ];
    let (_bench, upstream, backend) = serving("repr-coded", headers, &["--fresh", "1h"]).await;
    let body = long();
    let coded = async |asked: &str| loop {
        let got = ask(&backend, "/a", asked).await;
        assert_eq!(got.status, 200, "{}", got.head);
        let head = got.head.to_ascii_lowercase();
        assert_eq!(head.matches("vary: accept-encoding").count(), 1, "{head}");
        if got.head.contains("content-encoding: ") {
            return got;
        }
        assert_eq!(got.body, body, "until it is coded");
    };
    let gzip = timeout(HANGS, coded("accept-encoding: gzip"))
        .await
        .expect("it is coded");
    assert!(
        gzip.head.contains("content-encoding: gzip") && gzip.head.contains("etag: \"v1-gzip\""),
        "{}",
        gzip.head
    );
    let mut decoded = Vec::new();
    GzDecoder::new(&gzip.body[..])
        .read_to_end(&mut decoded)
        .expect("gzip");
    assert_eq!(decoded, body);
    let br = coded("accept-encoding: gzip;q=0.5, br").await;
    assert!(
        br.head.contains("content-encoding: br") && br.head.contains("etag: \"v1-br\""),
        "{}",
        br.head
    );
    decoded.clear();
    brotli::BrotliDecompress(&mut &br.body[..], &mut decoded).expect("brotli");
    assert_eq!(decoded, body);
    for (path, asked, status, coding) in [
        ("/a", "", 200, None),
        ("/a", "accept-encoding: identity", 200, None),
        ("/a", "accept-encoding: br;q=0, gzip;q=0.0", 200, None),
        ("/a", "accept-encoding: br;q=0, GZIP", 200, Some("gzip")),
        (
            "/a",
            "accept-encoding: gzip\r\nif-none-match: \"v1-gzip\"",
            304,
            Some("gzip"),
        ),
        (
            "/a",
            "accept-encoding: gzip\r\nif-none-match: \"v1\"",
            200,
            Some("gzip"),
        ),
        // A range counts uncompressed bytes, so its response is not compressed.
        ("/a", "accept-encoding: gzip\r\nrange: bytes=0-9", 206, None),
        ("/b", "accept-encoding: gzip, br", 200, None),
    ] {
        let got = ask(&backend, path, asked).await;
        assert_eq!(got.status, status, "{asked}: {}", got.head);
        let coding = coding.map(|coding| format!("content-encoding: {coding}\r\n"));
        let has = |coding: &String| got.head.contains(coding);
        assert_eq!(
            got.head.contains("content-encoding"),
            coding.is_some(),
            "{asked}: {}",
            got.head
        );
        assert!(coding.as_ref().is_none_or(has), "{asked}: {}", got.head);
    }
    assert_eq!(upstream.heads().len(), 2);
}

#[tokio::test]
async fn headers_of_the_service_decide_about_age_and_about_what_may_be_old() {
    let passed = "link: </next>; rel=\"next\"\r\nlink: </first>; rel=\"first\"\r\ncontent-language: de\r\n\
                  content-disposition: attachment\r\nx-internal: 10.0.0.7\r\n";
    let expires =
        format!("date: {DATE}\r\nexpires: Fri, 27 Nov 2026 10:02:00 GMT\r\nage: 100\r\n{passed}");
    // Of the two minutes until the response expires, 20 s are left.
    let headers = [typed(&expires), typed("expires: 0\r\n")];
    let (_bench, upstream, backend) = serving("repr-age", headers, &["--fresh", "1h"]).await;
    for path in ["/a", "/a", "/b", "/b"] {
        assert_eq!(backend.get(path).await.status, 200);
    }
    assert_eq!(upstream.heads().len(), 3, "a time in the past is not fresh");
    let got = backend.get("/a").await;
    for line in [
        "age: 10",
        "link: </next>",
        "link: </first>",
        "content-language: de",
        "content-disposition: attachment",
        "expires: ",
    ] {
        assert!(
            got.head.contains(&format!("\r\n{line}")),
            "{line}: {}",
            got.head
        );
    }
    assert!(!got.head.contains("10.0.0.7"), "{}", got.head);

    // After a minute of failures only what may be stale is served.
    for (name, control, status) in [
        ("repr-stale", "cache-control: max-age=1\r\n", 200),
        (
            "repr-must",
            "cache-control: max-age=1, must-revalidate\r\n",
            503,
        ),
        (
            "repr-proxy",
            "cache-control: max-age=1, proxy-revalidate\r\n",
            503,
        ),
        ("repr-vary", "vary: accept, *\r\n", 503),
    ] {
        let bench = Bench::new(name, Config::default()).await;
        let headers = format!("content-length: 2\r\n{}", typed(control));
        let upstream = Upstream::start(move |_, nth| match nth {
            0 => answer("200 OK", &headers, b"{}"),
            _ => answer("503 Service Unavailable", "content-length: 0\r\n", b""),
        });
        let list = bench.path("resources");
        fs::write(&list, "/a\n").expect("a file");
        let arguments = [
            "backend",
            "--list",
            text(&list),
            "--listen",
            "127.0.0.1:0",
            "--stale",
            "1h",
            "--deadline",
            "20s",
        ];
        let backend =
            Serving::start(bench.tds(&[&arguments[..], &["--base-url", &upstream.url]].concat()));
        assert_eq!(backend.get("/a").await.status, 200, "{name}");
        sleep(Duration::from_millis(1_100)).await;
        assert_eq!(backend.get("/a").await.status, status, "{name}");
    }
}

#[tokio::test]
async fn text_of_the_service_reaches_the_developer_without_secrets() {
    let json = "content-type: application/json\r\n";
    let ours = r#"{"kind":"KIND"}"#;
    for (status, headers, body, got, kind, shown) in [
        (
            "400 Bad Request",
            json,
            r#"{"error":"filter_is_wrong","at":{"column":7}}"#,
            400,
            "rejected",
            r#"{"error":"filter_is_wrong","at":{"column":7}}"#,
        ),
        (
            "404 Not Found",
            json,
            r#"{"message":"no line 9"}"#,
            404,
            "not_found",
            r#"{"message":"no line 9"}"#,
        ),
        ("405 Method Not Allowed", json, "{}", 405, "rejected", "{}"),
        ("409 Conflict", "", "twice", 409, "rejected", r#""twice""#),
        (
            "422 Unprocessable Content",
            json,
            "[1]",
            422,
            "rejected",
            "[1]",
        ),
        ("418 I'm a teapot", json, "{}", 502, "rejected", ours),
        (
            "503 Service Unavailable",
            json,
            r#"{"message":"x"}"#,
            503,
            "unavailable",
            ours,
        ),
        (
            "400 Bad Request",
            "content-type: text/html\r\n",
            "<html><title>No such filter</title><p>by nginx</html>",
            400,
            "rejected",
            r#""No such filter""#,
        ),
        (
            "400 Bad Request",
            json,
            r#"{"message":"client SECRET, see http://docs.example/x?a=s3cr3t"}"#,
            400,
            "rejected",
            r#"{"message":"client [redacted], see http://docs.example/x?[redacted]"}"#,
        ),
    ] {
        let bench = Bench::new("repr-text", Config::default()).await;
        let secret = bench.server.client_secret().to_owned();
        let body = body.replace("SECRET", &secret);
        let headers = format!("{headers}content-length: {}\r\n", body.len());
        let upstream = Upstream::start(move |_, _| answer(status, &headers, body.as_bytes()));
        let list = bench.path("resources");
        fs::write(&list, "/a\n").expect("a file");
        let arguments = [
            "backend",
            "--list",
            text(&list),
            "--listen",
            "127.0.0.1:0",
            "--base-url",
            &upstream.url,
            "--deadline",
            "20s",
        ];
        let user = Serving::start(bench.tds(&arguments)).get("/a").await;
        let problem: serde_json::Value = serde_json::from_slice(&user.body).expect("JSON");
        assert_eq!(
            (user.status, &problem["kind"]),
            (got, &kind.into()),
            "{status}: {problem}"
        );
        assert_eq!(problem["status"], got, "{problem}");
        for line in [
            "content-type: application/problem+json",
            "x-content-type-options: nosniff",
        ] {
            assert!(user.head.contains(line), "{}", user.head);
        }
        let all = user.text();
        for hidden in [&*secret, "s3cr3t", "nginx", "127.0.0.1"] {
            assert!(!all.contains(hidden), "{hidden}: {all}");
        }
        match shown == ours {
            true => assert!(
                problem.get("body").is_none() && problem.get("detail").is_none(),
                "{problem}"
            ),
            false => {
                let shown: serde_json::Value = serde_json::from_str(shown).expect("JSON");
                assert_eq!(problem["body"], shown, "{status}");
                assert!(problem["detail"].is_string(), "{problem}");
            }
        }
    }
}
