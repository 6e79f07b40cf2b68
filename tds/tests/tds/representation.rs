//! HTTP as users of a backend expect it: conditions, ranges, codings, ages and headers, by what a service that writes every byte of its
//! answers has seen.

use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::{
    Bench, at_once, path_of,
    serving::{Answer, Serving},
    until,
    upstream::sized,
};

const DATE: &str = "Fri, 27 Nov 2026 10:00:00 GMT";

/// A text that can be coded.
fn long() -> Vec<u8> {
    let lines = (0..2_000).map(|n| format!("{{\"line\":{n}}}\n"));
    lines.collect::<String>().into_bytes()
}

/// A backend in front of a service with these headers for each of its two paths.
async fn serving(headers: [String; 2]) -> (Bench, Serving) {
    let bench = Bench::of(move |head, _| {
        let headers = &headers[usize::from(path_of(head) == "/b")];
        sized("200 OK", headers, &long())
    })
    .await;
    let backend = bench.serve("--fresh 1h");
    (bench, backend)
}

fn typed(more: &str) -> String {
    format!("content-type: application/json\r\n{more}")
}

async fn ask(backend: &Serving, path: &str, more: &str) -> Answer {
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{more}");
    backend.ask(head.trim_end()).await
}

#[tokio::test]
async fn user_who_has_the_response_gets_a_304_and_one_who_wants_a_part_gets_it() {
    let versions =
        format!("etag: \"v1\"\r\nlast-modified: {DATE}\r\ncache-control: max-age=60\r\n");
    let (bench, backend) = serving([typed(&versions), typed("etag: W/\"w1\"\r\n")]).await;
    let body = long();
    let length = body.len();
    let since = format!("if-modified-since: {DATE}");
    for (path, asked, status) in [
        ("/a", "if-none-match: \"v1\"", 304),
        ("/a", "if-none-match: \"other\", W/\"v1\"", 304),
        ("/a", "if-none-match: *", 304),
        ("/a", "if-none-match: \"other\"", 200),
        ("/a", &since, 304),
        (
            "/a",
            "if-modified-since: Fri, 27 Nov 2026 09:59:59 GMT",
            200,
        ),
        // If both are there, the tag decides.
        ("/a", &format!("if-none-match: \"other\"\r\n{since}"), 200),
        ("/b", "if-none-match: W/\"w1\"", 304),
        ("/b", &since, 200),
    ] {
        let got = ask(&backend, path, asked).await;
        let sent = if status == 304 { 0 } else { length };
        assert_eq!(
            (got.status, got.body.len()),
            (status, sent),
            "{asked}: {}",
            got.head
        );
        let tag = ["etag: \"v1\"", "etag: w/\"w1\""][usize::from(path == "/b")];
        assert!(
            got.head.contains(tag) && got.head.contains("age: "),
            "{}",
            got.head
        );
    }
    let last = length - 1;
    let most = u64::MAX;
    for (asked, status, start, end) in [
        ("0-9", 206, 0, 9),
        ("5-5", 206, 5, 5),
        ("100-", 206, 100, last),
        ("-7", 206, length - 7, last),
        ("10-99999999", 206, 10, last),
        ("0-9\r\nif-range: \"v1\"", 206, 0, 9),
        (&format!("0-9\r\nif-range: {DATE}"), 206, 0, 9),
        ("0-9\r\nif-range: \"other\"", 200, 0, last),
        ("0-1,5-6", 200, 0, last),
        ("9-5", 416, 0, 0),
        (&format!("{length}-"), 416, 0, 0),
        (&format!("{most}-{most}"), 416, 0, 0),
    ] {
        let got = ask(&backend, "/a", &format!("range: bytes={asked}")).await;
        assert_eq!(got.status, status, "{asked}: {}", got.head);
        let range = match status {
            416 => format!("content-range: bytes */{length}\r\n"),
            _ => format!("content-range: bytes {start}-{end}/{length}\r\n"),
        };
        assert_eq!(
            got.head.contains(&range),
            status != 200,
            "{asked}: {}",
            got.head
        );
        assert!(status == 416 || got.body == body[start..=end], "{asked}");
    }
    assert_eq!(ask(&backend, "/a", "range: lines=0-1").await.status, 200);
    assert_eq!(bench.heads().len(), 2, "one call for each path");
}

#[tokio::test]
async fn text_is_coded_once_for_all_users_with_a_tag_of_its_own() {
    let (bench, backend) = serving([
        typed("etag: \"v1\"\r\nvary: Accept-Encoding\r\n"),
        "content-type: image/png\r\netag: \"p\"\r\n".to_owned(),
    ])
    .await;
    let body = long();
    let is_coded = async || {
        let got = ask(&backend, "/a", "accept-encoding: gzip").await;
        assert_eq!(
            got.head.matches("vary: accept-encoding").count(),
            1,
            "{}",
            got.head
        );
        // The whole is sent until it is coded.
        got.head.contains("content-encoding: ") || got.body != body
    };
    until(is_coded).await;
    let coded = async |asked: &str, coding: &str| {
        let got = ask(&backend, "/a", asked).await;
        let lines = [
            format!("content-encoding: {coding}"),
            format!("etag: \"v1-{coding}\""),
        ];
        assert!(
            lines.iter().all(|line| got.head.contains(line)),
            "{}",
            got.head
        );
        got.body
    };
    let mut decoded = Vec::new();
    let gzip = coded("accept-encoding: gzip", "gzip").await;
    GzDecoder::new(&gzip[..])
        .read_to_end(&mut decoded)
        .expect("gzip");
    assert_eq!(decoded, body);
    decoded.clear();
    let br = coded("accept-encoding: gzip;q=0.5, br", "br").await;
    brotli::BrotliDecompress(&mut &br[..], &mut decoded).expect("brotli");
    assert_eq!(decoded, body);
    for (path, asked, status, coding) in [
        ("/a", "", 200, ""),
        ("/a", "accept-encoding: identity", 200, ""),
        ("/a", "accept-encoding: br;q=0, gzip;q=0.0", 200, ""),
        ("/a", "accept-encoding: br;q=0, GZIP", 200, "gzip"),
        (
            "/a",
            "accept-encoding: gzip\r\nif-none-match: \"v1-gzip\"",
            304,
            "gzip",
        ),
        (
            "/a",
            "accept-encoding: gzip\r\nif-none-match: \"v1\"",
            200,
            "gzip",
        ),
        // A range counts uncompressed bytes, so its response is not compressed.
        ("/a", "accept-encoding: gzip\r\nrange: bytes=0-9", 206, ""),
        ("/b", "accept-encoding: gzip, br", 200, ""),
    ] {
        let got = ask(&backend, path, asked).await;
        assert_eq!(got.status, status, "{asked}: {}", got.head);
        let mut lines = got.head.lines();
        let line = lines.find_map(|line| line.strip_prefix("content-encoding: "));
        assert_eq!(line.unwrap_or_default(), coding, "{asked}: {}", got.head);
    }
    assert_eq!(bench.heads().len(), 2);
}

// The tests in `backend` show which responses are served while the service fails.
#[tokio::test]
async fn headers_of_the_service_decide_about_age_and_only_some_are_passed_on() {
    let passed = "link: </next>; rel=\"next\"\r\nlink: </first>; rel=\"first\"\r\ncontent-language: de\r\n\
                  content-disposition: attachment\r\nx-internal: 10.0.0.7\r\n";
    let expires =
        format!("date: {DATE}\r\nexpires: Fri, 27 Nov 2026 10:02:00 GMT\r\nage: 100\r\n{passed}");
    // Of the two minutes until the response expires, 20 s are left.
    let (bench, backend) = serving([typed(&expires), typed("expires: 0\r\n")]).await;
    for path in ["/a", "/a", "/b", "/b"] {
        assert_eq!(backend.get(path).await.status, 200);
    }
    assert_eq!(bench.heads().len(), 3, "a time in the past is not fresh");
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
}

#[tokio::test]
async fn text_of_the_service_reaches_the_developer_without_secrets() {
    let json = "content-type: application/json\r\n";
    let filter = r#"{"error":"filter_is_wrong","at":{"column":7}}"#;
    let line = r#"{"message":"no line 9"}"#;
    let page = "<html><title>No such filter</title><p>by nginx</html>";
    let secret = r#"{"message":"client SECRET, see http://docs.example/x?a=s3cr3t"}"#;
    let clean = r#"{"message":"client [redacted], see http://docs.example/x?[redacted]"}"#;
    let cases = [
        ("400 Bad Request", json, filter, 400, "rejected", filter),
        ("404 Not Found", json, line, 404, "not_found", line),
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
        ("418 I'm a teapot", json, "{}", 502, "rejected", ""),
        (
            "503 Service Unavailable",
            json,
            line,
            503,
            "unavailable",
            "",
        ),
        (
            "400 Bad Request",
            "content-type: text/html\r\n",
            page,
            400,
            "rejected",
            r#""No such filter""#,
        ),
        ("400 Bad Request", json, secret, 400, "rejected", clean),
    ];
    at_once(
        cases,
        |(status, headers, body, got, kind, shown)| async move {
            let own = Bench::new().await.server.client_secret().to_owned();
            let body = body.replace("SECRET", &own);
            let bench = Bench::of(move |_, _| sized(status, headers, body.as_bytes())).await;
            assert_eq!(bench.server.client_secret(), own, "the seed is the same");
            let user = bench.serve("").get("/a").await;
            let problem: Value = serde_json::from_slice(&user.body).expect("JSON");
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
            for hidden in [&*own, "s3cr3t", "nginx", "127.0.0.1"] {
                assert!(!user.text().contains(hidden), "{hidden}: {problem}");
            }
            let shown = (!shown.is_empty()).then(|| serde_json::from_str(shown).expect("JSON"));
            assert_eq!(problem.get("body"), shown.as_ref(), "{status}");
            assert_eq!(
                problem.get("detail").is_some_and(Value::is_string),
                shown.is_some()
            );
        },
    )
    .await;
}

#[tokio::test]
async fn service_that_repeats_its_request_shows_no_token() {
    let token = "0paque-t0ken-of-the-service";
    let bench = Bench::of(move |head, _| {
        let issued = format!(r#"{{"access_token":"{token}","token_type":"Bearer"}}"#);
        let page = format!("<html><title>{token}</title>");
        match path_of(head) {
            "/token" => sized("200 OK", "", issued.as_bytes()),
            "/json" => sized("400 Bad Request", "", issued.as_bytes()),
            "/page" => sized("400 Bad Request", "", page.as_bytes()),
            "/portal" => sized("200 OK", "", page.as_bytes()),
            _ => sized("400 Bad Request", "", head.as_bytes()),
        }
    })
    .await;
    let mut run = bench.tds("backend --listen 127.0.0.1:0");
    let upstream = bench.upstream.as_ref().expect("it has one");
    run.env_remove("TDS_AUTH_URL");
    run.env("TDS_TOKEN_URL", format!("{}/token", upstream.url));
    let backend = Serving::start(run);
    for path in ["/json", "/page", "/text"] {
        let user = backend.get(path).await;
        assert!(user.status == 400 && user.text().contains("[redacted]"));
        assert!(!user.text().contains(token), "{path}: {}", user.text());
    }
    assert!(bench.heads().iter().any(|head| head.contains(token)));
    assert_eq!(backend.get("*").await.status, 400, "no path");
    assert_eq!(backend.get("/portal").await.status, 503);
    let log = backend.log();
    assert!(
        log.contains("titled \"[redacted]\"") && !log.contains(token),
        "{log}"
    );
}
