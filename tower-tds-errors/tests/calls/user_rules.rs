//! A user's own meaning of a response: a `map_err` between the retry and the classification.

use std::{io, num::NonZeroU32, time::Duration};

use http::{Method, Request, StatusCode};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_tds_errors::{ClassifyLayer, Error, GiveUp, Kind, Outcome, RetryLayer, Sent};
use tower_tds_outcome::{Cause, Resend};

use crate::probe::{Probe, get, status_of};

/// The error of a call whose errors are changed by `rule`.
async fn tried(
    probe: &Probe,
    request: Request<http_body_util::Full<bytes::Bytes>>,
    rule: impl Fn(&mut Error) + Clone + Send + 'static,
) -> Error {
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new())
        .map_err(move |mut error: Error| {
            rule(&mut error);
            error
        })
        .layer(ClassifyLayer::new())
        .service(probe.clone());
    stack.oneshot(request).await.unwrap_err()
}

fn post(uri: &str) -> Request<http_body_util::Full<bytes::Bytes>> {
    let mut request = get(uri);
    *request.method_mut() = Method::POST;
    request
}

#[tokio::test(start_paused = true)]
async fn kind_set_by_a_rule_decides_about_the_retry_and_its_wait() {
    let rule = |error: &mut Error| match error.status() {
        Some(StatusCode::NOT_FOUND) => error.set_kind(Kind::RateExceeded),
        Some(StatusCode::SERVICE_UNAVAILABLE) => error.set_kind(Kind::Rejected),
        _ => {}
    };
    for (status, times) in [(404, 3), (503, 1), (500, 3)] {
        let probe = Probe::always(status);
        tried(&probe, get("/v2"), rule).await;
        let seen = probe.seen();
        assert_eq!(seen.len(), times, "{status}");
        assert!(status != 404 || seen[1].at >= Duration::from_secs(1));
    }
}

#[tokio::test(start_paused = true)]
async fn forbidden_retry_stays_forbidden_under_another_kind() {
    let probe = Probe::always(503);
    let error = tried(&probe, get("/v2"), |error| {
        error.set_gave_up(GiveUp::Forbidden);
        error.set_kind(Kind::Throttled);
    });
    let error = error.await;
    assert_eq!((probe.seen().len(), error.is_retryable()), (1, false));
    assert_eq!(error.kind(), Kind::Throttled);
    assert_eq!(error.gave_up(), Some(GiveUp::Forbidden));
    let line = error.to_string();
    assert!(
        line.ends_with("not retried because a retry is forbidden"),
        "{line}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_sent_stays_so_under_an_unsent_kind() {
    for kind in [Kind::Connect, Kind::LimitTimeout, Kind::TokenUnavailable] {
        for (status, sent) in [(Some(409), Sent::Answered), (None, Sent::Unknown)] {
            let probe = Probe::new(move |_| match status {
                Some(status) => Ok(status_of(status)),
                None => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
            });
            let error = tried(&probe, post("/"), move |error| error.set_kind(kind)).await;
            assert_eq!((error.kind(), error.sent()), (kind, sent));
            assert_eq!(error.gave_up(), Some(GiveUp::NotIdempotent));
            assert_eq!(probe.seen().len(), 1);
        }
    }
}

/// A layer in between, for example one that sets the host.
#[tokio::test(start_paused = true)]
async fn error_names_the_request_after_changes_by_layers() {
    let probe = Probe::always(404);
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new())
        .map_request(|mut request: Request<_>| {
            *request.uri_mut() = "https://other.test/elsewhere".parse().unwrap();
            request
        })
        .layer(ClassifyLayer::new());
    let error = stack.service(probe).oneshot(get("/v2")).await.unwrap_err();
    assert!(
        error.to_string().contains("other.test/elsewhere"),
        "{error}"
    );
}

/// A service whose statuses mean something of their own, below all layers.
#[tokio::test(start_paused = true)]
async fn outcome_in_the_extensions_of_a_response_decides_its_kind() {
    let paused = Outcome::QuotaExceeded(Some(Duration::from_secs(9)));
    let cases = [
        (498, Outcome::TokenRefused, Some(Kind::InvalidToken)),
        (503, Outcome::RateExceeded, Some(Kind::RateExceeded)),
        (423, Outcome::Other, Some(Kind::Rejected)),
        (404, Outcome::Accepted, None),
        (500, paused, Some(Kind::Throttled)),
        (416, Outcome::Other, Some(Kind::Rejected)),
        (
            420,
            Outcome::ConnectionsExceeded,
            Some(Kind::ConnectionLimit),
        ),
    ];
    // Only a status is read in the light of its request.
    let ranged = || {
        let mut request = get("/v2");
        let range = http::HeaderValue::from_static("bytes=0-");
        request.headers_mut().insert("range", range);
        request
    };
    for (status, outcome, kind) in cases {
        let service = Probe::always(status).map_response(move |mut response| {
            response.extensions_mut().insert(outcome);
            response
        });
        let once = RetryLayer::new().attempts(NonZeroU32::MIN);
        let classified = once
            .clone()
            .layer(ClassifyLayer::new().layer(service.clone()));
        let answers = [
            classified.oneshot(ranged()).await,
            once.layer(service).oneshot(ranged()).await,
        ];
        for answer in answers {
            let read = answer.err().map(|error| {
                assert!(status != 416 || !error.is_retryable(), "{error}");
                (error.kind(), Outcome::of_error(&error).unwrap())
            });
            assert_eq!(read, kind.map(|kind| (kind, outcome)), "{status}");
        }
    }
}

/// A layer of your own, whose error carries a cause.
#[tokio::test(start_paused = true)]
async fn cause_of_a_users_own_layer_decides_kind_and_resend() {
    let permit = (Outcome::NoPermit, Kind::LimitTimeout);
    let rate = (Outcome::RateExceeded, Kind::RateExceeded);
    for ((outcome, kind), resend, stop, times) in [
        (rate, None, GiveUp::Attempts, 3),
        (permit, None, GiveUp::Attempts, 3),
        (permit, Some(Resend::Forbidden), GiveUp::Forbidden, 1),
        (permit, Some(Resend::TooLate), GiveUp::Deadline, 1),
    ] {
        let probe = Probe::new(move |_| {
            let mut cause = Cause::new(outcome);
            cause.resend = resend;
            Err(cause.over("too fast").into())
        });
        let stack = RetryLayer::new().layer(probe.clone());
        let error = stack.oneshot(get("/v2")).await.unwrap_err();
        assert_eq!((error.kind(), error.gave_up()), (kind, Some(stop)));
        assert_eq!(probe.seen().len(), times, "{error}");
    }
}
