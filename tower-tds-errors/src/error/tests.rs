use std::io;
use std::time::Duration;

use http::{Method, Uri};
use tower::BoxError;
use tower_tds_outcome::{Cause, Outcome, Resend, Secrets};

use super::Error;
use crate::{GiveUp, Kind, Sent};

#[test]
fn a_boxed_or_wrapped_error_keeps_its_facts_and_its_chain() {
    for is_wrapped in [false, true] {
        let mut error = Error::new(Kind::LimitTimeout, io::Error::other("no"));
        error.facts_mut().gave_up = Some(GiveUp::Attempts);
        let back = Error::from(match is_wrapped {
            false => BoxError::from(error),
            true => io::Error::other(error).into(),
        });
        assert_eq!(
            (back.kind(), back.sent()),
            (Kind::LimitTimeout, Sent::Never)
        );
        assert_eq!(back.gave_up(), Some(GiveUp::Attempts));
        let mut links = tower_tds_outcome::chain(&back);
        assert!(links.any(|link| link.is::<io::Error>()));
    }
}

#[test]
fn error_line_has_each_fact_once_and_the_first_request() {
    let mut headers = http::HeaderMap::new();
    let target = http::HeaderValue::from_static("https://id.example/auth?state=CANARY");
    headers.insert("location", target);
    let found = crate::classify(
        &http::HeaderMap::new(),
        http::StatusCode::FOUND,
        &headers,
        "",
    );
    let mut error = found.unwrap_err();
    let facts = error.facts_mut();
    facts.cause.wait = Some(Duration::from_secs(5));
    facts.note_request(&Method::GET, &Uri::from_static("https://api.example/v2"));
    facts.note_request(&Method::PUT, &Uri::from_static("https://other.example/"));
    facts.attempts = 3;
    facts.elapsed = Some(Duration::from_secs(2));
    facts.gave_up = Some(GiveUp::Deadline);
    assert_eq!(
        error.to_string(),
        "GET https://api.example/v2: redirect, upgrade or HTML page instead of data (status 302), \
         to https://id.example/auth, 3 attempts in 2.0s, wait at least 5s; \
         check the base URL; a login page means a missing token or a captive portal; \
         the deadline leaves no time for a retry"
    );
}

#[test]
fn long_error_line_keeps_its_advice_and_whole_details() {
    let next = "send fewer requests at once, here and in the other programs of this address";
    let uri: Uri = format!("/{}", "v1/".repeat(40)).parse().unwrap();
    for words in 0..60 {
        let cause = "somewhere ".repeat(words);
        for millis in [1, 922, 86_400_000] {
            let mut error = Error::new(Kind::LimitTimeout, cause.clone())
                .with_request(Method::GET, &uri)
                .with_advice(next);
            error.facts_mut().cause.wait = Some(Duration::from_millis(millis));
            let line = error.to_string();
            assert!(line.chars().count() <= 400, "{line}");
            assert!(line.ends_with(next), "{line}");
            let detail = line.contains("wait at least");
            let whole = format!(", wait at least {:.0?}; ", Duration::from_millis(millis));
            assert_eq!(line.contains(&whole), detail, "{line}");
        }
    }
}

#[test]
fn the_outermost_cause_decides_about_the_resend_and_the_nearest_gives_the_advice() {
    let error = Error::new(Kind::RateExceeded, "at 51 /s, says CANARY-42");
    let mut above = Cause::new(Outcome::RateExceeded);
    (above.resend, above.next) = (Some(Resend::Free), Some("drive".into()));
    above.wait = Some(Duration::from_secs(3));
    above.waited_for = Some("the rate limit".into());
    let secrets = Secrets::default();
    secrets.add("key", "CANARY-42");
    above.secrets = Some(secrets);
    let error = error.with_advice("drive slowly");
    let read = Error::from(BoxError::from(above.over(error)));
    assert_eq!(
        (read.is_free(), read.retry_after()),
        (true, Some(Duration::from_secs(3)))
    );
    assert_eq!(read.waited_for(), Some("the rate limit"));
    let text = read.to_string();
    assert!(
        text.ends_with("; drive slowly") && text.contains("says [redacted]"),
        "{text}"
    );
}

/// The errors of a token layer end with its address and its advice.
#[test]
fn the_line_has_the_address_and_the_advice_of_its_cause_once() {
    let error = Error::new(Kind::TokenRefused, "no; locked (https://h/token); ask us");
    let error = error.with_advice("ask us");
    let error = error.with_request(Method::POST, &Uri::from_static("https://h/token"));
    let line = "POST https://h/token: token request refused: no; locked; ask us";
    assert_eq!(error.to_string(), line);
}

/// The outer errors of some clients print an address alone.
#[test]
fn the_deepest_cause_that_is_more_than_an_address_speaks() {
    let inner = io::Error::other("https://h.example/v1");
    let error = Error::new(Kind::Connect, Cause::new(Outcome::Lost).over(inner));
    assert!(
        error.to_string().contains("https://h.example/v1"),
        "{error}"
    );
    #[derive(Debug)]
    struct Refused(io::Error);
    impl std::fmt::Display for Refused {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("the gate is closed")
        }
    }
    impl std::error::Error for Refused {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    let error = Error::new(Kind::Connect, Refused(io::Error::other("10.0.0.1:443")));
    assert!(error.to_string().contains("the gate is closed;"), "{error}");
}
