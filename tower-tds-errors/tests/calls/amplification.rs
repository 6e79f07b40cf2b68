//! Amplification: the number of requests that a failing service receives, by its own count.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tds_sim::{Config, Sim};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower::{BoxError, ServiceBuilder, ServiceExt};
use tower_tds_errors::{ClassifyLayer, Error, GiveUp, Kind, RetryLayer};

/// A service that fails every call in the same way, by a status or by a network fault.
fn failing(way: &str) -> Sim {
    let mut config = Config::default();
    config.rate = 1_000_000;
    config.faults.before_head = "lognormal:20ms:200ms".parse().expect("a delay");
    match way {
        // The simulator has one fault for both resets; `offer` distinguishes them.
        "refused-stream" => config
            .faults
            .data
            .push("reset-head".parse().expect("a fault")),
        "429" => config.quota = Some("0/86400s".parse().expect("a quota")),
        "423" => config.rate = 0,
        "416" => config.connections = 0,
        "401" => {}
        fault => config.faults.data.push(fault.parse().expect("a fault")),
    }
    config.counting = tds_sim::CountConnections::Busy;
    Sim::new(config)
}

/// Makes `calls` calls, one after each pause. Returns their errors.
async fn offer(sim: &Sim, way: &str, calls: u32, pause: Duration) -> Vec<Error> {
    fastrand::seed(7);
    let refuses = way == "refused-stream";
    let token = sim.token(sim.client_id()).expect("a token");
    // A token of another server.
    let token = format!("Bearer {token}{}", if way == "401" { "x" } else { "" });
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new())
        .layer(ClassifyLayer::new())
        // Converts the simulator's error into the one of a real connection.
        .map_err(move |error: tds_sim::Error| -> BoxError {
            assert!(error.is_reset(), "{error}");
            if refuses {
                return Error::new(Kind::Unavailable, error).into();
            }
            io::Error::from(io::ErrorKind::ConnectionReset).into()
        })
        .service(sim.clone());
    let mut tasks = JoinSet::new();
    for _ in 0..calls {
        let request = Request::get("http://data.example/v1/live/bus")
            .header("authorization", &token)
            .body(Full::<Bytes>::default());
        tasks.spawn(stack.clone().oneshot(request.expect("a request")));
        sleep(pause).await;
    }
    let outcomes = tasks.join_all().await;
    let errors = outcomes.into_iter().filter_map(Result::err);
    errors.collect()
}

const WAYS: [(&str, Kind); 7] = [
    ("401", Kind::InvalidToken),
    ("429", Kind::Throttled),
    ("423", Kind::RateExceeded),
    ("416", Kind::ConnectionLimit),
    ("503", Kind::Unavailable),
    ("reset-head", Kind::Reset),
    ("refused-stream", Kind::Unavailable),
];

#[tokio::test(start_paused = true)]
async fn retries_of_a_failing_service_stay_within_the_budget() {
    for (way, kind) in WAYS {
        let (sim, start) = (failing(way), Instant::now());
        // One minute at the allowed rate.
        let errors = offer(&sim, way, 3_000, Duration::from_millis(20)).await;
        assert_eq!(errors.len(), 3_000, "{way}");
        assert!(errors.iter().all(|error| error.kind() == kind), "{way}");
        let seen = sim.ledger().summary().data_calls;
        // The budget: a tenth of the calls, three a second, and fifteen at the start.
        let most = 3_000 + 300 + 3 * start.elapsed().as_secs() + 15;
        assert!(seen <= most, "{way}: {seen} of {most}");
        // The budget is used up, so the bound was reached.
        assert!(seen >= 3_000 + 300, "{way}: {seen}");
        let denied = |error: &&Error| error.gave_up() == Some(GiveUp::Budget);
        assert!(errors.iter().filter(denied).count() > 2_000, "{way}");
    }
}
