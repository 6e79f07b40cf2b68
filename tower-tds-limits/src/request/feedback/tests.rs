use std::{convert::Infallible, time::Duration};

use http::HeaderValue;
use proptest::prelude::*;

use super::*;
use crate::{account::reactions::Reactions, clock::Tick, error::WaitCause};

fn read(status: u16, headers: &[(&'static str, &'static str)]) -> Outcome {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    for (name, value) in headers {
        response
            .headers_mut()
            .append(*name, HeaderValue::from_static(value));
    }
    ReadStatus.read(Ok::<_, &Infallible>(&response))
}

#[test]
fn each_contract_status_has_its_own_outcome() {
    assert_eq!(read(200, &[]), Outcome::Answered);
    assert_eq!(read(401, &[]), Outcome::Answered);
    assert_eq!(read(503, &[]), Outcome::Answered);
    assert_eq!(read(423, &[]), Outcome::RateExceeded);
    assert_eq!(read(429, &[]), Outcome::QuotaExceeded(None));
    assert_eq!(read(416, &[]), Outcome::ConnectionsExceeded);
}

#[test]
fn a_416_about_a_range_is_not_about_connections() {
    let about_a_range = [("content-range", "bytes */1234")];
    assert_eq!(read(416, &about_a_range), Outcome::Answered);
}

#[test]
fn the_wait_of_a_429_is_read_in_every_form() {
    let wait = |name, value| match read(429, &[(name, value)]) {
        Outcome::QuotaExceeded(wait) => wait,
        outcome => panic!("a 429 is about the quota, not {outcome:?}"),
    };
    let minute = Some(Duration::from_secs(60));
    for value in ["60", " 60 ", "60, 60", "7, 60", "59.1"] {
        assert_eq!(wait("retry-after", value), minute, "{value}");
    }
    assert_eq!(wait("ratelimit-reset", "60"), minute);
    assert_eq!(wait("x-ratelimit-reset", "60"), minute);
    let past = "Sun, 06 Nov 1994 08:50:37 GMT";
    assert_eq!(wait("retry-after", past), Some(Duration::ZERO));
    let dates = [
        ("retry-after", past),
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ];
    assert_eq!(read(429, &dates), Outcome::QuotaExceeded(minute));
    for no_hint in ["soon", "-1", "+5", ""] {
        assert_eq!(wait("retry-after", no_hint), None, "{no_hint}");
    }
}

#[test]
fn read_response_reads_an_error_as_lost() {
    assert_eq!(
        ReadResponse.read(Err::<&Response<()>, _>(&())),
        Outcome::Lost
    );
}

#[test]
fn refused_connect_is_unsent_and_broken_connection_is_lost() {
    let read = |kind: io::ErrorKind| {
        let error = io::Error::from(kind);
        let boxed: Box<dyn Error + Send + Sync> = Box::new(Nested(error.kind().into()));
        let bare = ReadStatus.read(Err::<&Response<()>, _>(&error));
        assert_eq!(ReadStatus.read(Err::<&Response<()>, _>(&boxed)), bare);
        let ours = error::Error::Inner(error);
        assert_eq!(ReadStatus.read(Err::<&Response<()>, _>(&ours)), bare);
        bare
    };
    assert_eq!(read(io::ErrorKind::ConnectionRefused), Outcome::Unsent);
    assert_eq!(read(io::ErrorKind::ConnectionReset), Outcome::Lost);
    assert_eq!(read(io::ErrorKind::TimedOut), Outcome::Lost);
}

#[derive(Debug)]
struct Nested(io::Error);

impl std::fmt::Display for Nested {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("outer")
    }
}

impl Error for Nested {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// Any header value, and values that look like a number or a date.
fn hostile() -> impl Strategy<Value = HeaderValue> {
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        "[-+0-9.eE,;= ]{0,40}".prop_map(String::into_bytes),
        any::<f64>().prop_map(|number| number.to_string().into_bytes()),
    ];
    let sent = |bytes: Vec<u8>| HeaderValue::from_bytes(&bytes).ok();
    bytes.prop_filter_map("it cannot be sent", sent)
}

/// A limit around another one, which did not let the request through.
#[test]
fn rejection_by_an_inner_limit_is_unsent() {
    let error = LimitError::timed_out(WaitCause::Connection, Duration::ZERO);
    let error = error::Error::<Infallible>::Limit(error);
    assert_eq!(
        ReadStatus.read(Err::<&Response<()>, _>(&error)),
        Outcome::Unsent
    );
}

/// The request may be counted, so its permit is not free.
#[test]
fn timeout_of_an_inner_limit_after_the_request_was_sent_is_lost() {
    let error = LimitError::deadline(WaitCause::Response, Duration::from_secs(1));
    let boxed: BoxError<'_> = Box::new(error.clone());
    assert_eq!(
        ReadStatus.read(Err::<&Response<()>, _>(&boxed)),
        Outcome::Lost
    );
    let error = error::Error::<Infallible>::Limit(error);
    assert_eq!(
        ReadStatus.read(Err::<&Response<()>, _>(&error)),
        Outcome::Lost
    );
}

/// The head was sent, whatever the source of the error is.
#[tokio::test(start_paused = true)]
async fn read_error_of_an_open_connection_is_lost() {
    let io = tokio_test::io::Builder::new()
        .write(b"GET / HTTP/1.1\r\n\r\n")
        .read_error(io::ErrorKind::ConnectionRefused.into())
        .build();
    let io = hyper_util::rt::TokioIo::new(io);
    let (mut send, connection) = hyper::client::conn::http1::handshake(io)
        .await
        .expect("a connection");
    tokio::spawn(connection);
    let answer = send.send_request(http::Request::new(String::new()));
    let answer = tokio::time::timeout(Duration::from_secs(1), answer).await;
    let error = answer.expect("in time").expect_err("a broken connection");
    let source = error.source().expect("a source");
    assert!(source.is::<io::Error>(), "{source:?}");
    let read = ReadStatus.read(Err::<&Response<()>, _>(&error));
    assert_eq!(read, Outcome::Lost);
}

proptest! {
    /// A 429 pauses for a second to a minute, whatever its headers are, and announces a year at
    /// most.
    #[test]
    fn any_retry_after_pauses_for_one_to_sixty_seconds(
        waits in prop::collection::vec(hostile(), 0..3),
    ) {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        for wait in waits {
            response.headers_mut().append(header::RETRY_AFTER, wait);
        }
        let outcome = ReadStatus.read(Ok::<_, &Infallible>(&response));
        prop_assert!(matches!(outcome, Outcome::QuotaExceeded(_)));
        let now = Tick::ZERO;
        let mut reactions = Reactions::default();
        let key = reactions.key();
        reactions.on(outcome, now, key, (0, 60));
        let pause = reactions.pause_of(key).expect("a pause begins");
        prop_assert!((1..=60).contains(&(pause.until.since(now) / 1_000_000_000)));
        prop_assert!(pause.announced.since(now) <= 366 * 86_400_000_000_000);
    }
}
