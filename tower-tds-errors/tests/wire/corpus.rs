//! Raw answers, byte for byte as gateways send them, and what each means.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::Full;
use tower::{Layer, ServiceExt};
use tower_tds_errors::{Answer, ClassifyLayer, Error, Kind};

use crate::server::{Act, Server, client};

/// The texts that more than one row has.
const RATE: Option<&str> = Some("API rate limit exceeded");
const ROLE: Option<&str> =
    Some("Access token does not have the required scope/role: Missing required realm role");

type Row = (
    &'static str,
    Option<Kind>,
    Option<&'static str>,
    Option<u64>,
);

/// File, kind, message, and the least wait in seconds.
#[rustfmt::skip] // A table reads in columns.
const TABLE: &[Row] = &[
    ("200-data", None, None, None),
    ("302-login", Some(Kind::UnexpectedRedirect), None, None),
    ("304-not-modified", None, None, None),
    ("400-echoes-secrets", Some(Kind::Rejected), Some("bad header Authorization: Bearer [redacted] form client_secret[redacted] uri https://api.example/v2[redacted]"), None),
    ("401-empty", Some(Kind::Unauthorized), None, None),
    ("401-header-only", Some(Kind::InvalidToken), Some("invalid token"), None),
    ("401-identity-502", Some(Kind::IdentityUnavailable), Some("response indicates failure, status=502, body=invalid token"), None),
    ("401-identity-down", Some(Kind::IdentityUnavailable), Some("accessing introspection endpoint (https://id.example/introspect) failed: timeout"), None),
    ("401-invalid-token", Some(Kind::InvalidToken), Some("invalid token"), None),
    ("401-invalid-token-json", Some(Kind::InvalidToken), Some("invalid token"), None),
    ("401-jwt-expired", Some(Kind::InvalidToken), Some("JWT expired"), None),
    ("401-kong-jwt-expired", Some(Kind::InvalidToken), Some("invalid_token"), None),
    ("401-kong-jwt-generic", Some(Kind::Unauthorized), Some("Unauthorized"), None),
    ("401-no-header", Some(Kind::MissingCredentials), Some("no Authorization header found"), None),
    ("401-oauth-client", Some(Kind::TokenRefused), Some("invalid_client"), None),
    ("401-role", Some(Kind::MissingRole), ROLE, None),
    ("401-role-html", Some(Kind::MissingRole), Some("Access token does not have the required scope/role: Missing required realm role."), None),
    ("403-role", Some(Kind::MissingRole), ROLE, None),
    ("404-kong", Some(Kind::NotFound), Some("no Route matched with those values"), None),
    ("408-empty", Some(Kind::ServerTimeout), None, None),
    ("416-nginx", Some(Kind::ConnectionLimit), Some("416 Requested Range Not Satisfiable"), None),
    ("423-kong", Some(Kind::RateExceeded), Some("Locked"), Some(3)),
    ("423-nginx-empty", Some(Kind::RateExceeded), None, Some(1)),
    ("429-chunked", Some(Kind::Throttled), RATE, Some(1)),
    ("429-day-quota", Some(Kind::QuotaExhausted), RATE, Some(86_400)),
    ("429-http-date", Some(Kind::Throttled), RATE, Some(20)),
    ("429-kong-headers-hidden", Some(Kind::Throttled), Some("plan \"basic\" has ended"), None),
    ("429-kong-html", Some(Kind::Throttled), Some("API rate limit exceeded."), Some(7)),
    ("429-kong-json", Some(Kind::Throttled), RATE, Some(7)),
    ("429-kong-old-compact", Some(Kind::Throttled), RATE, None),
    ("429-kong-text", Some(Kind::Throttled), RATE, Some(7)),
    ("429-kong-xml", Some(Kind::Throttled), RATE, Some(7)),
    ("500-close-delimited", Some(Kind::Unavailable), Some("it broke"), None),
    ("500-kong", Some(Kind::Unavailable), Some("An unexpected error occurred"), None),
    ("501-plain", Some(Kind::Rejected), Some("not implemented"), Some(1)),
    ("502-kong", Some(Kind::Unavailable), Some("An invalid response was received from the upstream server"), None),
    ("503-big5", Some(Kind::Unavailable), None, None),
    ("503-chinese", Some(Kind::Unavailable), Some("系統維護中"), None),
    ("503-controls", Some(Kind::Unavailable), Some("\\u{1b}[31mred\\u{7}"), None),
    ("503-gzip", Some(Kind::Unavailable), Some("bar"), None),
    ("503-gzip-undeclared", Some(Kind::Unavailable), Some("bar"), None),
    ("503-kong", Some(Kind::Unavailable), Some("The upstream server is currently unavailable"), None),
    ("503-truncated", Some(Kind::Unavailable), Some("half a sen"), None),
    ("504-kong", Some(Kind::ServerTimeout), Some("The upstream server is timing out"), None),
    ("520-edge-html", Some(Kind::Unavailable), Some("api.example | 520: Web server is returning an unknown error"), None),
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn raw(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name).with_extension("http")).unwrap()
}

async fn ask(raw: Vec<u8>) -> Result<StatusCode, Error> {
    let server = Server::start(Act::WriteAndClose(raw)).await;
    let request = Request::get(format!("{}?key=CANARY", server.uri()))
        .header("authorization", "Bearer CANARY")
        .body(Full::<Bytes>::default())
        .unwrap();
    let service = ClassifyLayer::new().layer(client());
    service
        .oneshot(request)
        .await
        .map(|response| response.status())
}

#[tokio::test]
async fn every_answer_means_what_the_table_says() {
    for (name, kind, message, wait) in TABLE {
        match ask(raw(name)).await {
            Ok(_) => assert_eq!(*kind, None, "{name}"),
            Err(error) => {
                assert_eq!(Some(error.kind()), *kind, "{name}");
                assert_eq!(error.message(), *message, "{name}");
                let wait = wait.map(Duration::from_secs);
                assert_eq!(error.retry_after(), wait, "{name}");
                assert_eq!(error.retry_at().is_some(), wait.is_some(), "{name}");
                assert_eq!(
                    error.status().map(|s| s.as_str().to_owned()),
                    Some(name[..3].to_owned())
                );
                if String::from_utf8_lossy(&raw(name)).contains("X-Kong-Request-Id") {
                    assert_eq!(error.request_id(), Some("4e0ab27b6f2d3a1c9b5c0f7e8d6a1b2c"));
                }
                for text in [
                    format!("{error}"),
                    format!("{error:?}"),
                    format!("{error:#?}"),
                ] {
                    assert!(!text.contains("CANARY"), "{name}: {text}");
                }
                assert!(!error.to_string().contains('\n'), "{name}");
            }
        }
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

#[test]
fn an_answer_cut_at_any_byte_of_its_body_means_the_whole_or_what_its_head_means() {
    for (name, kind, ..) in TABLE {
        let raw = raw(name);
        let at = raw.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
        let (status, headers) = head(&raw[..at]);
        let body = &raw[at.saturating_add(4)..];
        let answer = Answer::new(status, &headers);
        for end in 0..=body.len() {
            let cut = answer.body(&body[..end]).kind();
            assert!(
                cut == *kind || cut == answer.kind(),
                "{name} at {end}: {cut:?}"
            );
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
