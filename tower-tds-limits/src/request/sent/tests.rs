use std::{io, time::Duration};

use super::*;

fn read(error: &(dyn error::Error + 'static)) -> Outcome {
    of_error(error)
}

#[derive(Debug)]
struct Nested(io::Error);

impl std::fmt::Display for Nested {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("outer")
    }
}

impl error::Error for Nested {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.0)
    }
}

/// A limit around another one: a request that was sent may be counted, so its permit is not free.
#[test]
fn error_of_an_inner_limit_is_unsent_unless_it_is_about_the_response() {
    let of = |decision, cause| read(&Error::new(decision, cause, None));
    let unsent = of(Decision::TimedOut, WaitCause::Connection);
    assert_eq!(unsent, Outcome::Unsent);
    assert_eq!(of(Decision::Deadline, WaitCause::Response), Outcome::Lost);
}

/// A layer below that makes errors of responses needs no line of the user.
#[test]
fn error_that_carries_its_outcome_is_read_as_it_is() {
    for outcome in [
        Outcome::RateExceeded,
        Outcome::QuotaExceeded(Some(Duration::from_secs(7))),
        Outcome::ConnectionsExceeded,
        Outcome::Other,
        Outcome::Unsent,
    ] {
        let carried = || io::Error::other(Cause::new(outcome));
        assert_eq!(read(&carried()), outcome);
        assert_eq!(read(&Nested(carried())), outcome);
    }
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
    let source = error::Error::source(&error).expect("a source");
    assert!(source.is::<io::Error>(), "{source:?}");
    assert_eq!(read(&error), Outcome::Lost);
}
