//! Retries: when and how often requests are sent again, as the service saw them.

use std::io;
use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Version};
use http_body_util::Full;
use proptest::prelude::*;
use tokio::time::Instant;
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_tds_errors::{ClassifyLayer, Error, GiveUp, Kind, RetryLayer, Sent};

use crate::probe::{Probe, get, status_of};

type Answer = Result<Response<Full<Bytes>>, Error>;

async fn send(layer: RetryLayer, probe: &Probe, request: Request<Full<Bytes>>) -> Answer {
    let stack = layer.layer(ClassifyLayer::new().layer(probe.clone()));
    stack.oneshot(request).await
}

async fn fails(layer: RetryLayer, probe: &Probe) -> Error {
    send(layer, probe, get("https://api.example/v2?key=CANARY"))
        .await
        .unwrap_err()
}

fn attempts(n: u32) -> RetryLayer {
    RetryLayer::new().attempts(NonZeroU32::new(n).unwrap())
}

fn with(status: u16, headers: &[(&'static str, &'static str)]) -> Response<Full<Bytes>> {
    let mut response = status_of(status);
    for (name, value) in headers {
        response.headers_mut().insert(*name, value.parse().unwrap());
    }
    response
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// RFC 9110, sections 15.5.2, 15.5.9, 15.5.14 and 15.5.20, and RFC 8470, section 5.2.
#[tokio::test(start_paused = true)]
async fn a_hint_is_a_wait_before_a_retry_by_the_rule_of_status_and_method() {
    let hinted = [
        400, 403, 404, 408, 409, 413, 416, 420, 421, 422, 423, 425, 429, 500, 503, 600,
    ];
    let others = [(401, 2), (301, 1), (407, 1), (501, 1), (505, 1)];
    for (status, times) in hinted.map(|status| (status, 3)).into_iter().chain(others) {
        for (method, times) in [(Method::GET, times), (Method::POST, 1)] {
            let probe = Probe::new(move |_| Ok(with(status, &[("retry-after", "2")])));
            let mut request = get("/");
            *request.method_mut() = method.clone();
            let start = Instant::now();
            let error = send(RetryLayer::new(), &probe, request).await.unwrap_err();
            assert_eq!(probe.seen().len(), times, "{status}");
            assert!(times < 3 || start.elapsed() >= secs(4), "{error}");
            let is_fatal = error.gave_up() == Some(GiveUp::Fatal);
            assert!(times == 3 || method == Method::POST || is_fatal, "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn too_long_a_hint_ends_the_call_at_once_and_is_in_the_error() {
    let endless = RetryLayer::new().longest_wait(Duration::MAX);
    for (layer, hint, stop) in [
        (RetryLayer::new(), "31", GiveUp::HintTooLong),
        (RetryLayer::new(), "86400", GiveUp::HintTooLong),
        (
            RetryLayer::new(),
            "99999999999999999999999",
            GiveUp::HintTooLong,
        ),
        // Beyond the range of the clock.
        (
            endless.deadline(Duration::MAX),
            "99999999999999999999",
            GiveUp::HintTooLong,
        ),
        (RetryLayer::new().deadline(secs(10)), "10", GiveUp::Deadline),
    ] {
        let probe = Probe::new(move |_| Ok(with(429, &[("retry-after", hint)])));
        let start = Instant::now();
        let error = fails(layer, &probe).await;
        assert_eq!(error.gave_up(), Some(stop), "{hint}");
        assert!(error.retry_after() >= Some(secs(10)));
        assert_eq!((start.elapsed(), probe.seen().len()), (Duration::ZERO, 1));
    }
}

/// The number of attempts of a request whose attempts all fail with `kind`.
async fn sends(method: &Method, kind: Kind) -> (u32, Option<GiveUp>) {
    let service = tower::service_fn(move |_: Request<String>| {
        std::future::ready(Err::<Response<()>, _>(Error::new(kind, "no")))
    });
    let request = Request::builder()
        .method(method)
        .uri("https://api.example/v2?key=CANARY");
    let stack = attempts(3).budget(None).layer(service);
    let error = stack
        .oneshot(request.body(String::new()).unwrap())
        .await
        .unwrap_err();
    let start = format!("{method} https://api.example/v2: ");
    assert!(error.to_string().starts_with(&start), "{error}");
    (error.attempts(), error.gave_up())
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_sent_is_sent_again_only_if_its_method_is_idempotent() {
    let safe = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE];
    let others = [Method::PUT, Method::DELETE];
    let own = Method::from_bytes(b"PURGE").unwrap();
    let once = [Method::POST, Method::PATCH, Method::CONNECT, own];
    let retryable = |kind: &&Kind| Error::new(**kind, "so").is_retryable();
    for kind in Kind::ALL.iter().filter(retryable) {
        let is_unsent = Error::new(*kind, "so").sent() == Sent::Never;
        for method in safe.iter().chain(&others).chain(&once) {
            let expected = match kind {
                _ if once.contains(method) && !is_unsent => (1, GiveUp::NotIdempotent),
                Kind::InvalidToken => (2, GiveUp::Fatal),
                _ => (3, GiveUp::Attempts),
            };
            let expected = (expected.0, Some(expected.1));
            assert_eq!(sends(method, *kind).await, expected, "{method} {kind}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_attempt_sends_the_same_request_with_its_extensions_and_its_number() {
    #[derive(Clone)]
    struct Mark;
    let probe = Probe::always(503);
    let request = Request::put("https://api.example/v2?$filter=a%20b")
        .version(Version::HTTP_10)
        .header("x-a", "1")
        .header("x-a", "2")
        .extension(Mark);
    let stack = ServiceBuilder::new().layer(RetryLayer::new()).map_request(
        |request: Request<Full<Bytes>>| {
            assert!(request.extensions().get::<Mark>().is_some());
            request
        },
    );
    let request = request.body(Full::from("bytes")).unwrap();
    let answer = stack.service(probe.clone()).oneshot(request).await;
    assert!(answer.is_err());
    let seen = probe.seen();
    for part in ["$filter=a%20b", "HTTP/1.0", "bytes"] {
        assert!(seen[0].line.contains(part), "{}", seen[0].line);
    }
    assert!(seen.iter().all(|each| each.line == seen[0].line));
    assert_eq!(
        seen.iter().map(|each| each.attempt).collect::<Vec<_>>(),
        [1, 2, 3]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_mix_of_answers_ends_within_attempts_and_deadline(
        mix in prop::collection::vec(
            prop::sample::select(vec![0u16, 1, 200, 401, 404, 416, 423, 429, 503]), 1..8),
        most in 1u32..6,
        deadline in 1u64..20,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async move {
            let answer = move |n: usize| match mix[n % mix.len()] {
                0 => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
                1 => Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
                status => {
                    let mut response = with(status, &[("retry-after", "1")]);
                    if status == 401 {
                        *response.body_mut() = Full::from("invalid token");
                    }
                    if n.is_multiple_of(2) {
                        *response.headers_mut() = HeaderMap::new();
                    }
                    Ok(response)
                }
            };
            let probe = Probe::with(answer, Duration::from_millis(700), usize::MAX);
            let start = Instant::now();
            let layer = attempts(most).deadline(secs(deadline));
            let result = send(layer, &probe, get("/")).await;
            assert!(probe.seen().len() <= usize::try_from(most).unwrap());
            assert!(start.elapsed() <= secs(deadline) + Duration::from_millis(1));
            match result {
                Ok(response) => assert_eq!(response.status(), 200),
                Err(error) => assert!(error.gave_up().is_some()),
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn request_whose_content_length_is_not_that_of_its_body_is_never_sent() {
    for (lengths, body, is_sent) in [
        (&["3"][..], "abc", true),
        (&[], "abc", true),
        (&["0"], "", true),
        (&["2"], "abc", false),
        (&["4"], "abc", false),
        (&["0"], "GET /admin HTTP/1.1\r\n\r\n", false),
        (&["3", "3"], "abc", false),
        (&["3, 3"], "abc", false),
        (&["+3"], "abc", false),
        (&["-1"], "", false),
        (&["three"], "abc", false),
    ] {
        let probe = Probe::always(200);
        let mut request = Request::put("https://api.example/v2");
        for length in lengths {
            request = request.header("content-length", *length);
        }
        let request = request.body(Full::from(body)).unwrap();
        let sent = send(attempts(3), &probe, request).await;
        assert_eq!(probe.seen().len(), usize::from(is_sent), "{lengths:?}");
        if !is_sent {
            let error = sent.unwrap_err();
            assert_eq!(error.kind(), Kind::InvalidRequest);
            assert_eq!((error.sent(), error.is_retryable()), (Sent::Never, false));
            assert!(error.to_string().contains("Content-Length"), "{error}");
        }
    }
}
