//! Raw responses, byte for byte as gateways send them, and the kind of each.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;
use tower::{BoxError, Layer, ServiceExt};
use tower_tds_errors::{ClassifyLayer, Error, Kind, RetryLayer, classify};

use self::Again::{Backoff, No, Once, Silence};
use crate::server::read_head;
use crate::{get, once};

/// Texts that occur in more than one row.
const RATE: Option<&str> = Some("API rate limit exceeded");
const ROLE: Option<&str> =
    Some("Access token does not have the required scope/role: Missing required realm role");

type Row = (
    &'static str,
    Option<Kind>,
    Again,
    Option<&'static str>,
    Option<u64>,
);

/// The retries of a response, as far as three attempts show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    No,
    Once,
    Backoff,
    Silence,
}

/// File, kind, how it is retried, message, and the least wait in seconds.
#[rustfmt::skip] // A table reads in columns.
const TABLE: &[Row] = &[
    ("200-data", None, No, None, None),
    ("200-page", None, No, None, None),
    ("200-page-for-data", Some(Kind::UnexpectedResponse), No, Some("Please log in."), None),
    ("302-login", Some(Kind::UnexpectedResponse), No, None, None),
    ("304-not-modified", None, No, None, None),
    ("400-echoes-secrets", Some(Kind::Rejected), No, Some("bad header Authorization: Bearer [redacted], form client_secret=[redacted], uri https://api.example/v2?[redacted]"), None),
    ("401-empty", Some(Kind::InvalidToken), Once, None, None),
    ("401-header-only", Some(Kind::InvalidToken), Once, Some("invalid token"), None),
    ("401-identity-502", Some(Kind::Unavailable), Backoff, Some("response indicates failure, status=502, body=invalid token"), None),
    ("401-identity-down", Some(Kind::Unavailable), Backoff, Some("accessing introspection endpoint (https://id.example/introspect) failed: timeout"), None),
    ("401-invalid-token", Some(Kind::InvalidToken), Once, Some("invalid token"), None),
    ("401-invalid-token-br", Some(Kind::InvalidToken), Once, None, None),
    ("401-invalid-token-gzip-plain", Some(Kind::InvalidToken), Once, Some("invalid token"), None),
    ("401-invalid-token-html", Some(Kind::InvalidToken), Once, Some("invalid token."), None),
    ("401-invalid-token-json", Some(Kind::InvalidToken), Once, Some("invalid token"), None),
    ("401-invalid-token-truncated", Some(Kind::InvalidToken), Once, Some("invalid t"), None),
    ("401-invalid-token-xml", Some(Kind::InvalidToken), Once, Some("invalid token"), None),
    ("401-jwt-expired", Some(Kind::InvalidToken), Once, Some("JWT expired"), None),
    ("401-kong-jwt-expired", Some(Kind::InvalidToken), Once, Some("invalid_token"), None),
    ("401-kong-jwt-generic", Some(Kind::InvalidToken), Once, Some("Unauthorized"), None),
    ("401-no-header", Some(Kind::MissingCredentials), No, Some("no Authorization header found"), None),
    ("401-no-header-gzip", Some(Kind::InvalidToken), Once, None, None),
    ("401-no-header-html", Some(Kind::MissingCredentials), No, Some("no Authorization header found."), None),
    ("401-no-header-json", Some(Kind::MissingCredentials), No, Some("no Authorization header found"), None),
    ("401-no-header-moved", Some(Kind::MissingCredentials), No, Some("no Authorization header found"), None),
    ("401-no-header-truncated", Some(Kind::InvalidToken), Once, Some("no Authorizatio"), None),
    ("401-no-header-xml", Some(Kind::MissingCredentials), No, Some("no Authorization header found"), None),
    ("401-oauth-client", Some(Kind::InvalidToken), Once, Some("Invalid client or Invalid client credentials"), None),
    ("401-role", Some(Kind::MissingRole), No, ROLE, None),
    ("401-role-gzip", Some(Kind::InvalidToken), Once, None, None),
    ("401-role-html", Some(Kind::MissingRole), No, Some("Access token does not have the required scope/role: Missing required realm role."), None),
    ("401-role-moved", Some(Kind::MissingRole), No, Some("insufficient_scope"), None),
    ("401-role-says-token", Some(Kind::MissingRole), No, Some("insufficient_scope"), None),
    ("401-role-text", Some(Kind::MissingRole), No, ROLE, None),
    ("401-role-translated", Some(Kind::MissingRole), No, Some("insufficient_scope"), None),
    ("401-role-xml", Some(Kind::MissingRole), No, ROLE, None),
    ("401-token-says-no-header", Some(Kind::InvalidToken), Once, Some("invalid token"), None),
    ("403-role", Some(Kind::MissingRole), No, ROLE, None),
    ("403-waf", Some(Kind::Rejected), No, Some("Attention Required! | Edge"), None),
    ("404-kong", Some(Kind::NotFound), No, Some("no Route matched with those values"), None),
    ("408-empty", Some(Kind::Unavailable), Backoff, None, None),
    ("416-empty", Some(Kind::ConnectionLimit), Backoff, None, None),
    ("416-gzip", Some(Kind::ConnectionLimit), Backoff, None, None),
    ("416-kong", Some(Kind::ConnectionLimit), Backoff, Some("Range not satisfiable"), None),
    ("416-nginx", Some(Kind::ConnectionLimit), Backoff, Some("416 Requested Range Not Satisfiable"), None),
    ("416-range-past-end", Some(Kind::Rejected), No, Some("416 Requested Range Not Satisfiable"), None),
    ("416-range-unclear", Some(Kind::Rejected), Once, None, None),
    ("421-misdirected", Some(Kind::Unavailable), Backoff, Some("Misdirected Request"), None),
    ("423-br", Some(Kind::RateExceeded), Silence, None, Some(1)),
    ("423-html", Some(Kind::RateExceeded), Silence, Some("423 Locked"), Some(1)),
    ("423-kong", Some(Kind::RateExceeded), Silence, Some("Locked"), Some(3)),
    ("423-kong-text", Some(Kind::RateExceeded), Silence, Some("Locked"), Some(1)),
    ("423-kong-xml", Some(Kind::RateExceeded), Silence, Some("Locked"), Some(3)),
    ("423-nginx-empty", Some(Kind::RateExceeded), Silence, None, Some(1)),
    ("423-truncated", Some(Kind::RateExceeded), Silence, None, Some(1)),
    ("429-bomb", Some(Kind::Throttled), Silence, None, Some(7)),
    ("429-br", Some(Kind::Throttled), Silence, None, Some(7)),
    ("429-chunked", Some(Kind::Throttled), Silence, RATE, Some(1)),
    ("429-day-quota", Some(Kind::QuotaExhausted), Silence, RATE, Some(86_400)),
    ("429-deflate", Some(Kind::Throttled), Silence, None, Some(7)),
    ("429-draft-07", Some(Kind::Throttled), Silence, Some("slow down"), None),
    ("429-draft-10", Some(Kind::Throttled), Silence, RATE, None),
    ("429-draft-10-minute", Some(Kind::Throttled), Silence, None, None),
    ("429-empty", Some(Kind::Throttled), Silence, None, None),
    ("429-epoch", Some(Kind::Throttled), Silence, Some("slow down"), Some(12)),
    ("429-gzip", Some(Kind::Throttled), Silence, None, Some(7)),
    ("429-gzip-truncated", Some(Kind::Throttled), Silence, None, Some(7)),
    ("429-http-date", Some(Kind::Throttled), Silence, RATE, Some(20)),
    ("429-kong-headers-hidden", Some(Kind::Throttled), Silence, Some("plan \"basic\" has ended"), None),
    ("429-kong-html", Some(Kind::Throttled), Silence, Some("API rate limit exceeded."), Some(7)),
    ("429-kong-json", Some(Kind::Throttled), Silence, RATE, Some(7)),
    ("429-kong-month-hidden-reset", Some(Kind::QuotaExhausted), Silence, RATE, None),
    ("429-kong-named", Some(Kind::Throttled), Silence, Some("API rate limit exceeded for 'calls'"), None),
    ("429-kong-old-compact", Some(Kind::Throttled), Silence, RATE, None),
    ("429-kong-text", Some(Kind::Throttled), Silence, RATE, Some(7)),
    ("429-kong-xml", Some(Kind::Throttled), Silence, RATE, Some(7)),
    ("429-malformed-hints", Some(Kind::Throttled), Silence, RATE, None),
    ("429-stacked", Some(Kind::Throttled), Silence, None, Some(7)),
    ("500-close-delimited", Some(Kind::Unavailable), Backoff, Some("it broke"), None),
    ("500-kong", Some(Kind::Unavailable), Backoff, Some("An unexpected error occurred"), None),
    ("501-plain", Some(Kind::Rejected), No, Some("not implemented"), Some(1)),
    ("502-kong", Some(Kind::Unavailable), Backoff, Some("An invalid response was received from the upstream server"), None),
    ("503-big5", Some(Kind::Unavailable), Backoff, None, None),
    ("503-chinese", Some(Kind::Unavailable), Backoff, Some("系統維護中"), None),
    ("503-controls", Some(Kind::Unavailable), Backoff, None, None),
    ("503-gbk", Some(Kind::Unavailable), Backoff, None, None),
    ("503-gzip", Some(Kind::Unavailable), Backoff, None, None),
    ("503-gzip-undeclared", Some(Kind::Unavailable), Backoff, None, None),
    ("503-kong", Some(Kind::Unavailable), Backoff, Some("The upstream server is currently unavailable"), None),
    ("503-problem", Some(Kind::Unavailable), Backoff, Some("back at noon"), Some(5)),
    ("503-truncated", Some(Kind::Unavailable), Backoff, Some("half a sen"), None),
    ("503-utf16", Some(Kind::Unavailable), Backoff, None, None),
    ("504-kong", Some(Kind::Unavailable), Backoff, Some("The upstream server is timing out"), None),
    ("503-zstd", Some(Kind::Unavailable), Backoff, None, None),
    ("511-portal", Some(Kind::UnexpectedResponse), No, Some("Log in to Airport Wi-Fi"), None),
    ("520-edge-html", Some(Kind::Unavailable), Backoff, Some("api.example | 520: Web server is returning an unknown error"), None),
];

/// Further headers of the request, where the meaning of the response depends on them.
const REQUEST_HEADERS: &[(&str, &str, &str)] = &[
    ("200-page-for-data", "accept", "application/json"),
    ("416-range-past-end", "range", "bytes=2000-"),
    ("416-range-unclear", "range", "bytes=2000-"),
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn raw(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name).with_extension("http")).unwrap()
}

fn request_headers(name: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_static("Bearer CANARY"));
    for (_, header, value) in REQUEST_HEADERS.iter().filter(|row| row.0 == name) {
        headers.insert(*header, HeaderValue::from_static(value));
    }
    headers
}

/// Each attempt is answered with these bytes, by a server in memory whose clock is the test's.
#[tokio::test(start_paused = true)]
async fn every_corpus_response_is_classified_and_retried_as_listed() {
    for (name, kind, again, message, wait) in TABLE {
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let arrivals = Arc::clone(&arrived);
        let server = tower::service_fn(move |request| {
            arrivals.lock().unwrap().push(Instant::now());
            answer_in_memory(request, raw(name))
        });
        let stack = RetryLayer::new().layer(ClassifyLayer::new().layer(server));
        let mut request = get("/v2/rail?key=CANARY");
        *request.headers_mut() = request_headers(name);
        let error = stack.oneshot(request).await.err();
        assert_eq!(error.as_ref().map(Error::kind), *kind, "{name}");
        let hint = wait.map(Duration::from_secs);
        if let Some(error) = error {
            assert_eq!(error.is_retryable(), *again != No, "{name}");
            assert_eq!(error.message(), *message, "{name}");
            assert_eq!(error.retry_after(), hint, "{name}");
            let status = error.status().map(|status| status.as_str().to_owned());
            assert_eq!(status.as_deref(), name.get(..3));
            let printed = format!("{error:?}");
            if String::from_utf8_lossy(&raw(name)).contains("X-Kong-Request-Id") {
                let id = ", request id 4e0ab27b6f2d3a1c9b5c0f7e8d6a1b2c]";
                assert!(printed.ends_with(id), "{printed}");
            }
            assert!(!printed.contains("CANARY"), "{name}: {printed}");
            assert!(!error.to_string().contains('\n'), "{name}");
            once(&error);
            once(&Error::from(BoxError::from(error)));
        }
        let arrived = arrived.lock().unwrap();
        let waits = arrived.windows(2).map(|two| two[1] - two[0]);
        let waits: Vec<_> = waits.collect();
        let (hint, second) = (hint.unwrap_or_default(), Duration::from_secs(1));
        let is_as_listed = match again {
            No => waits.is_empty(),
            // The default bound of a wait is 30 s.
            Silence if hint > 30 * second => waits.is_empty(),
            Once => waits.len() == 1 && waits[0] < second,
            Backoff => {
                (1..=2).contains(&waits.len()) && waits[0] >= hint && waits[0] < 2 * hint + second
            }
            Silence => waits.len() == 2 && waits.iter().all(|wait| *wait >= hint.max(second)),
        };
        assert!(is_as_listed, "{name}: {again:?}, {waits:?}");
    }
}

#[test]
fn the_table_and_the_folder_list_the_same_answers() {
    let files = std::fs::read_dir(folder())
        .unwrap()
        .map(|file| file.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "http"));
    let files: BTreeSet<_> = files
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let rows: BTreeSet<_> = TABLE.iter().map(|row| row.0.to_owned()).collect();
    assert_eq!(files, rows);
}

/// Sends the request to a server in memory that writes `raw` and closes.
async fn ask_in_memory(name: &str, raw: &[u8]) -> Result<StatusCode, Error> {
    let raw = raw.to_vec();
    let server = tower::service_fn(move |request| answer_in_memory(request, raw.clone()));
    let mut request = get("/v2/rail?key=CANARY");
    *request.headers_mut() = request_headers(name);
    let response = ClassifyLayer::new().layer(server).oneshot(request).await?;
    Ok(response.status())
}

/// Answers a request with these bytes, and closes.
async fn answer_in_memory(
    request: Request<Full<Bytes>>,
    raw: Vec<u8>,
) -> hyper::Result<Response<Incoming>> {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let (mut send, connection) = http1::handshake(TokioIo::new(near)).await?;
    tokio::spawn(connection);
    tokio::spawn(async move {
        read_head(&mut far).await;
        far.write_all(&raw).await.unwrap();
    });
    send.send_request(request).await
}

#[tokio::test]
async fn truncated_response_has_its_own_kind_or_its_status_kind() {
    for (name, kind, ..) in TABLE {
        let raw = raw(name);
        let body = raw.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
        let (status, headers) = head(&raw[..body - 4]);
        let by_head = classify(&request_headers(name), status, &headers, "").err();
        let by_head = by_head.map(|error| error.kind());
        for end in 0..raw.len() {
            let error = ask_in_memory(name, &raw[..end]).await.err();
            let cut = error.map(|error| error.kind());
            if end < body {
                assert_eq!(cut, Some(Kind::Reset), "{name} at {end}");
                continue;
            }
            assert!(cut == *kind || cut == by_head, "{name} at {end}: {cut:?}");
        }
    }
}

fn head(raw: &[u8]) -> (StatusCode, HeaderMap) {
    let text = std::str::from_utf8(raw).unwrap();
    let (first, lines) = text.split_once("\r\n").unwrap_or((text, ""));
    let status = first.split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.lines().map(|line| {
        let (name, value) = line.split_once(": ").unwrap();
        let name: HeaderName = name.parse().unwrap();
        (name, HeaderValue::from_str(value).unwrap())
    });
    (status, headers.collect())
}
