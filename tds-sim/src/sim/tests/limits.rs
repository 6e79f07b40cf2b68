//! 416, 423 and the order of all checks.

use std::{net::SocketAddr, time::Duration};

use http::Request;
use tokio::time::{Instant, advance};

use super::{answer, get, status, text, with_token};
use crate::{DataFault, Faults, Outcome, Rule, Scripted, Sim, When};

fn peer(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn from(peer: SocketAddr, token: &str) -> Request<String> {
    let mut request = get("/v1/live/a", token);
    request.extensions_mut().insert(peer);
    request
}

#[tokio::test(start_paused = true)]
async fn the_51st_request_in_a_second_is_refused() {
    let (sim, token) = with_token(|_| {});
    for _ in 0..50 {
        assert_eq!(status(&sim, get("/v1/live/a", &token)).await, 200);
    }
    let refused = answer(&sim, get("/v1/live/a", &token)).await.unwrap();
    assert_eq!(refused.status(), 423);
    assert_eq!(
        text(refused).await,
        r#"{"message":"Too many requests per second"}"#
    );
    assert_eq!(
        status(&sim, from(peer("10.0.0.2:1"), &token)).await,
        200,
        "another address"
    );
    advance(Duration::from_secs(1)).await;
    assert_eq!(status(&sim, get("/v1/live/a", &token)).await, 200);

    let summary = sim.ledger().summary();
    assert_eq!(summary.by_status, [(200, 52), (423, 1)].into());
    assert_eq!(summary.largest_second, 52);
}

#[tokio::test(start_paused = true)]
async fn every_rule_and_rate_can_be_chosen() {
    for (rule, accepted) in [
        (Rule::FixedWindow, 3),
        (Rule::SlidingLog, 3),
        (Rule::SlidingLogAll, 3),
        (Rule::SlidingCounter, 3),
        (Rule::LeakyBucket { burst: 1 }, 2),
        (Rule::InFlight, 3),
    ] {
        let (sim, token) = with_token(|config| {
            config.rule = rule;
            config.rate = 3;
            config.per = Duration::from_secs(10);
        });
        for nth in 0..5 {
            let expected = if nth < accepted { 200 } else { 423 };
            let status = status(&sim, get("/v1/live/a", &token)).await;
            assert_eq!(status, expected, "{rule:?} {nth}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn in_flight_counts_to_the_end_of_the_body_or_its_drop() {
    let (sim, token) = with_token(|config| {
        config.rule = Rule::InFlight;
        config.rate = 1;
    });
    let held = answer(&sim, get("/v1/live/a", &token)).await.unwrap();
    for _ in 0..2 {
        advance(Duration::from_secs(30)).await;
        assert_eq!(
            status(&sim, get("/v1/live/a", &token)).await,
            423,
            "the end of a refused one is nobody's"
        );
    }
    drop(held);
    assert_eq!(
        status(&sim, get("/v1/live/a", &token)).await,
        423,
        "within a second of the end"
    );
    advance(Duration::from_secs(1)).await;
    assert_eq!(status(&sim, get("/v1/live/a", &token)).await, 200);
    assert_eq!(sim.ledger().arrivals()[0].outcome, Outcome::Aborted);
}

#[tokio::test(start_paused = true)]
async fn too_many_connections_refuse_every_request_of_the_address() {
    let (sim, token) = with_token(|config| config.connections = 2);
    let home = peer("10.0.0.1:1");
    let (first, _second) = (sim.connect(home), sim.connect(peer("10.0.0.1:2")));
    assert_eq!(status(&sim, from(home, &token)).await, 200);
    let third = sim.connect(peer("[::ffff:10.0.0.1]:3"));
    let refused = answer(&sim, from(home, &token)).await.unwrap();
    assert_eq!(refused.status(), 416);
    assert_eq!(text(refused).await, r#"{"message":"Too many connections"}"#);
    assert_eq!(
        status(&sim, from(peer("10.0.0.2:1"), &token)).await,
        200,
        "another address"
    );
    drop(third);
    assert_eq!(status(&sim, from(home, &token)).await, 200);
    drop(first);
    let summary = sim.ledger().summary();
    let opened = (summary.sockets_opened, summary.peak_sockets);
    assert_eq!((opened, summary.sockets_open), ((3, 3), 1));
}

#[tokio::test(start_paused = true)]
async fn checks_run_in_their_documented_order() {
    // Everything is wrong at once; then, from the outside in, one thing after the other is right.
    let (sim, token) = with_token(|config| {
        config.connections = 0;
        config.rate = 1;
        config.roles = vec!["live".to_owned()];
        config.quota = Some("0/1s".parse().unwrap());
        let status = DataFault::Status {
            status: 502,
            burst: 1,
        };
        config.faults.data.push(Scripted::new(status, When::Always));
    });
    let crowd = sim.connect(peer("127.0.0.1:1"));
    assert_eq!(status(&sim, get("/v1/history/a", "x")).await, 416);
    drop(crowd);
    assert_eq!(
        status(&sim, get("/v1/history/a", "x")).await,
        502,
        "a 416 is not metered"
    );
    assert_eq!(status(&sim, get("/v1/history/a", "x")).await, 423);
    sim.set_faults(Faults::default());
    for (path, token, expected) in [
        ("/v1/history/a", "x", 401),
        ("/v1/history/a", &*token, 401),
        ("/v1/live/a", &token, 429),
        ("/nowhere", &token, 429),
    ] {
        advance(Duration::from_secs(1)).await;
        assert_eq!(status(&sim, get(path, token)).await, expected, "{path}");
    }
    sim.set_quota(None);
    advance(Duration::from_secs(1)).await;
    assert_eq!(status(&sim, get("/nowhere", &token)).await, 404);
}

async fn answer_of(sim: Sim, token: String) -> u16 {
    status(&sim, get("/v1/live/a", &token)).await
}

#[tokio::test(start_paused = true)]
async fn call_is_counted_after_the_delay_before_counting() {
    let (sim, token) =
        with_token(|config| config.faults.before_counting = "300ms".parse().unwrap());
    let start = Instant::now();
    assert_eq!(status(&sim, get("/v1/live/a", &token)).await, 200);
    assert_eq!(start.elapsed(), Duration::from_millis(300));
    assert_eq!(sim.ledger().arrivals()[0].at, Duration::from_millis(300));

    let on_its_way = tokio::spawn(answer_of(sim.clone(), token));
    advance(Duration::from_millis(200)).await;
    on_its_way.abort();
    assert!(on_its_way.await.unwrap_err().is_cancelled());
    assert_eq!(
        sim.ledger().summary().data_calls,
        1,
        "the second one never arrived"
    );
}

#[tokio::test(start_paused = true)]
async fn call_cancelled_before_its_head_is_aborted() {
    let (sim, token) = with_token(|config| config.faults.before_head = "10s".parse().unwrap());
    let waiting = tokio::spawn(answer_of(sim.clone(), token));
    tokio::task::yield_now().await;
    assert_eq!(sim.ledger().summary().in_progress, 1);
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let summary = sim.ledger().summary();
    assert_eq!((summary.in_progress, summary.aborted), (0, 1));
    assert_eq!(sim.ledger().arrivals()[0].status, None);
}
