//! A quota of ten seconds on a socket, and quotas of a minute, an hour and a day under paused time.

use http::Request;
use tds_sim::{Config, Quota, Sim};
use tokio::time::{Duration, Instant};
use tower::{Layer as _, ServiceExt};
use tower_tds::{
    Limiter, Limits,
    layers::limits::{Quota as Limit, RequestLimitLayer},
};

use super::assert_all_served;
use crate::{Bench, ended, output};

#[tokio::test]
async fn a_quota_of_ten_seconds_is_kept_on_a_socket() {
    let bench = Bench::with(|config| {
        (config.rate, config.per) = (5, Duration::from_secs(10));
        config.quota = Some(Quota::new(5, config.per));
    })
    .await;
    // The job begins with a wait for one interval.
    let job = bench.job("files", "/v1/live/bus-{1..6}\n", "--rate 5/11s");
    ended(&output(job).await, 0);
    assert_all_served("5 in 10 s", &bench, 6);
}

/// Makes `calls` as soon as the limit allows them.
async fn kept(requests: u32, per: Duration, calls: u32) {
    let mut config = Config::default();
    (config.rate, config.per) = (requests, per);
    config.faults.before_head = "50ms".parse().expect("a delay");
    // No layer renews the token here.
    config.expires_in = 30 * 86_400;
    let sim = Sim::new(config);
    let token = sim.token(sim.client_id()).expect("its own key");
    let requests_of = requests.try_into().expect("some");
    let limit = Limit::new(requests_of, per).expect("it can be kept");
    let limiter = Limiter::new(Limits::new(limit));
    let service = RequestLimitLayer::new(limiter).layer(sim.clone());
    let begun = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for n in 0..calls {
        let request = Request::get(format!("http://data.example/v1/live/bus-{n}"))
            .header("authorization", format!("Bearer {token}"))
            .body(String::new())
            .expect("a request");
        let service = service.clone();
        running.spawn(async move {
            let response = service.oneshot(request).await.expect("an answer");
            http_body_util::BodyExt::collect(response.into_body())
                .await
                .expect("a body");
        });
    }
    running.join_all().await;
    let seen = sim.ledger().summary();
    println!(
        "{requests} in {} min: {calls} calls in {} min of paused time, statuses {:?}",
        per.as_secs() / 60,
        begun.elapsed().as_secs() / 60,
        seen.by_status
    );
    assert_eq!(seen.by_status, [(200, calls.into())].into());
}

#[tokio::test(start_paused = true)]
async fn quotas_of_a_minute_an_hour_and_a_day_are_kept_under_paused_time() {
    kept(5, Duration::from_secs(60), 30).await;
    kept(1_000, Duration::from_secs(3_600), 2_500).await;
    kept(2_000, Duration::from_secs(86_400), 5_000).await;
}
