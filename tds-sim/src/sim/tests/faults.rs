//! Faults without a socket, and paced bodies.

use std::{io::Read as _, time::Duration};

use flate2::read::GzDecoder;
use http::Response;
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use super::{answer, get, status, with_token};
use crate::{Body, Error, Faults, Outcome, Sim};

fn play(sim: &Sim, fault: &str) {
    let mut faults = Faults::default();
    faults.data.push(fault.parse().unwrap());
    sim.set_faults(faults);
}

/// The bytes up to the end or the error, and the error.
async fn drain(response: Response<Body>) -> (Vec<u8>, Option<Error>) {
    let (mut body, mut bytes) = (response.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes.extend(frame.into_data().unwrap()),
            Err(error) => return (bytes, Some(error)),
        }
    }
    (bytes, None)
}

#[tokio::test(start_paused = true)]
async fn a_reset_before_the_head_is_an_error_of_the_service() {
    let (sim, token) = with_token(|_| {});
    play(&sim, "reset-head@every:2");
    assert_eq!(status(&sim, get("/v1/live/a", &token)).await, 200);
    let error = answer(&sim, get("/v1/live/a", &token)).await.unwrap_err();
    assert!(error.is_reset());
    play(&sim, "garbage");
    let error = answer(&sim, get("/v1/live/a", &token)).await.unwrap_err();
    assert!(error.kind == crate::error::Kind::Garbage);
    let arrivals = sim.ledger().arrivals();
    let statuses: Vec<_> = arrivals.iter().map(|call| call.status).collect();
    assert_eq!(statuses, [Some(200), None, None]);
}

#[tokio::test(start_paused = true)]
async fn drip_pauses_at_each_byte_and_stall_once() {
    let (sim, token) = with_token(|config| config.live_bytes = 100);
    for (fault, seconds) in [("drip:1s", 100), ("stall:7s", 7)] {
        play(&sim, fault);
        let start = Instant::now();
        let response = answer(&sim, get("/v1/live/a", &token)).await.unwrap();
        assert_eq!(drain(response).await.0.len(), 100);
        assert_eq!(start.elapsed(), Duration::from_secs(seconds));
    }
    assert_eq!(sim.ledger().summary().complete, 2);
}

#[tokio::test(start_paused = true)]
async fn status_fault_burst_repeats_in_a_row() {
    let (sim, token) = with_token(|_| {});
    play(&sim, "503:2@every:4");
    let mut statuses = Vec::new();
    for _ in 0..10 {
        statuses.push(status(&sim, get("/v1/live/a", &token)).await);
    }
    assert_eq!(statuses, [200, 200, 200, 503, 503, 200, 200, 503, 503, 200]);
}

#[tokio::test(start_paused = true)]
async fn two_faults_apply_to_one_response() {
    let (sim, token) = with_token(|_| {});
    let data = vec!["500".parse().unwrap(), "drip:1s".parse().unwrap()];
    sim.set_faults(Faults {
        data,
        ..Faults::default()
    });
    let start = Instant::now();
    let response = answer(&sim, get("/v1/live/a", &token)).await.unwrap();
    assert_eq!(response.status(), 500);
    let bytes = drain(response).await.0;
    assert_eq!(
        start.elapsed(),
        Duration::from_secs(bytes.len().try_into().unwrap())
    );
}

#[tokio::test(start_paused = true)]
async fn random_faults_repeat_with_the_seed() {
    let run = async |seed| {
        let (sim, token) = with_token(|config| {
            config.seed = seed;
            config.rate = 1_000;
            config.faults.data.push("500@0.3".parse().unwrap());
        });
        let mut statuses = Vec::new();
        for _ in 0..200 {
            statuses.push(status(&sim, get("/v1/live/a", &token)).await);
        }
        statuses
    };
    let first = run(7).await;
    assert_eq!(first, run(7).await);
    assert_ne!(first, run(8).await);
    let struck = first.iter().filter(|status| **status == 500).count();
    assert!((30..90).contains(&struck), "{struck} of 200 at 0.3");
}

#[tokio::test(start_paused = true)]
async fn a_historical_resource_has_the_size_and_speed_of_its_query() {
    let (sim, token) = with_token(|_| {});
    let response = answer(&sim, get("/v1/history/a", &token)).await.unwrap();
    assert_eq!(drain(response).await.0.len(), 1 << 20);

    let start = Instant::now();
    let path = "/v1/history/a?bytes=200000&rate=10000";
    let (bytes, _) = drain(answer(&sim, get(path, &token)).await.unwrap()).await;
    assert_eq!(bytes.len(), 200_000);
    assert_eq!(start.elapsed(), Duration::from_secs(20));
    let arrival = &sim.ledger().arrivals()[1];
    assert_eq!(arrival.ended.unwrap() - arrival.at, Duration::from_secs(20));
    assert_eq!(arrival.outcome, Outcome::Complete);
}

#[tokio::test(start_paused = true)]
async fn a_coding_is_declared_and_decodes_to_the_same_bytes() {
    let (sim, token) = with_token(|_| {});
    let path = "/v1/history/a?bytes=3000000";
    let (plain, _) = drain(answer(&sim, get(path, &token)).await.unwrap()).await;
    for (asked, coding) in [("br,gzip", "br"), ("gzip", "gzip")] {
        for name in ["content-encoding", "accept-encoding"] {
            let mut request = get(path, &token);
            request.headers_mut().insert(name, asked.parse().unwrap());
            let response = answer(&sim, request).await.unwrap();
            assert_eq!(response.headers()["content-encoding"], coding);
            assert!(!response.headers().contains_key("content-length"));
            let (encoded, error) = drain(response).await;
            assert!(
                error.is_none() && encoded.len() * 4 < plain.len(),
                "{}",
                encoded.len()
            );
            let mut decoded = Vec::new();
            if coding == "br" {
                brotli::BrotliDecompress(&mut &*encoded, &mut decoded).unwrap();
            } else {
                GzDecoder::new(&*encoded).read_to_end(&mut decoded).unwrap();
            }
            assert!(decoded == plain, "{name}: {asked}");
        }
    }
}
