//! An hour of refused tokens, with and without a reason, and what a resend costs.

use std::{
    future::ready,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{BoxError, Layer, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_tds::{
    Credentials, Error, Limiter, Limits, TdsLayer,
    layers::{
        errors::{ClassifyLayer, GiveUp, RetryBudget, RetryLayer},
        limits::PermitBody,
        token::{Origin, TokenEndpoint, TokenSource},
    },
};

use crate::paused;

type Fake = BoxCloneSyncService<Request<Full<Bytes>>, Response<Full<Bytes>>, BoxError>;

type Stack = BoxCloneSyncService<Request<Full<Bytes>>, Response<PermitBody<Full<Bytes>>>, Error>;

fn fake(
    answer: impl Fn(Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, BoxError>
    + Clone
    + Send
    + Sync
    + 'static,
) -> Fake {
    BoxCloneSyncService::new(service_fn(move |request| ready(answer(request))))
}

/// The whole layer over this, whose token client reads answers as the data calls do.
fn whole(retry: RetryLayer, service: Fake) -> Stack {
    let endpoint = TokenEndpoint::keycloak("https://auth.example.org", "ServiceConnect");
    let credentials = Credentials::new("id", "s3cr3t").expect("usable");
    let tokens = TokenSource::builder(endpoint.expect("a URL"), credentials);
    let tokens = tokens.build(ClassifyLayer::new().layer(service.clone()));
    let origin = Origin::from_uri(&"https://data.example.org".parse().expect("a URL"));
    let layer = TdsLayer::new(
        tokens,
        [origin.expect("an origin")],
        Limiter::new(Limits::default()),
    );
    BoxCloneSyncService::new(layer.retry(retry).layer(service))
}

fn data() -> Request<Full<Bytes>> {
    let request = Request::get("https://data.example.org/v1/live/bus");
    request.body(Full::default()).expect("a request")
}

const INVALID: &str = "invalid token";

/// Whether a service accepts a token, by the age of both.
type Accepts = Box<dyn Fn(Duration, Duration) -> bool + Send + Sync>;

/// A service whose tokens are numbered and dated. `refusal` is the body of its 401.
fn judging(accepts: Accepts, life: u64, refusal: &'static str) -> Fake {
    let (start, accepts) = (Instant::now(), Arc::new(accepts));
    let issued = Arc::new(Mutex::new(Vec::new()));
    fake(move |request| {
        let mut issued = issued.lock().expect("no panic");
        if request.method() == "POST" {
            issued.push(Instant::now());
            return Ok(token(issued.len() - 1, life));
        }
        let token = request.headers()["authorization"].to_str().expect("ASCII");
        let (_, number) = token.split_once("Bearer t").expect("a number");
        let number: usize = number.parse().expect("a number");
        match accepts(issued[number].elapsed(), start.elapsed()) {
            true => status(200, "data"),
            false => status(401, refusal),
        }
    })
}

fn token(number: usize, life: u64) -> Response<Full<Bytes>> {
    let token =
        format!(r#"{{"access_token":"t{number}","expires_in":{life},"token_type":"Bearer"}}"#);
    Response::new(Full::from(token))
}

/// An hour of ten calls a second to a service.
struct Hour {
    what: String,
    accepts: Accepts,
    life: u64,
    refusal: &'static str,
    retry: RetryLayer,
    /// The most calls of 36,000 that may fail.
    most: u32,
}

// === impl Hour ===

impl Hour {
    fn new(
        what: impl ToString,
        accepts: impl Fn(Duration, Duration) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            what: what.to_string(),
            accepts: Box::new(accepts),
            life: 86_400,
            refusal: INVALID,
            retry: broke(),
            most: 0,
        }
    }

    /// The share of refused calls, in percent, and the most that may fail.
    fn random(share: u32, most: u32) -> Self {
        let rng = Mutex::new(fastrand::Rng::with_seed(7));
        let accepts = move |_, _| rng.lock().expect("no panic").u32(0..100) >= share;
        Self {
            most,
            retry: RetryLayer::new(),
            ..Self::new(format!("{share} %"), accepts)
        }
    }

    /// A gateway whose clock is behind. Renewals are of tokens that were accepted until then, many an hour.
    fn behind(behind: u64, life: u64) -> Self {
        let accepts = move |age: Duration, now: Duration| age >= secs(behind) || now < secs(60);
        Self {
            life,
            retry: RetryLayer::new(),
            ..Self::new(format!("{behind} s behind, {life} s"), accepts)
        }
    }

    fn early(minutes: u64, refusal: &'static str) -> Self {
        let what = format!("{minutes} min, {refusal}");
        Self {
            refusal,
            ..Self::new(what, move |age, _| age < secs(60 * minutes))
        }
    }

    async fn run(self) {
        let stack = whole(self.retry, judging(self.accepts, self.life, self.refusal));
        let mut calls = JoinSet::new();
        let (mut failed, mut last) = (0, None);
        for _ in 0..36_000 {
            calls.spawn(stack.clone().oneshot(data()));
            sleep(Duration::from_millis(100)).await;
            while let Some(ended) = calls.try_join_next() {
                if let Err(error) = ended.expect("no panic") {
                    failed += 1;
                    last = Some(error.to_string());
                }
            }
        }
        assert!(failed <= self.most, "{}: {failed}, {last:?}", self.what);
        let is_told = last.is_none_or(|it| it.contains("refused") && !it.contains("forbidden"));
        assert!(is_told, "{}", self.what);
    }
}

/// Without a budget: a resend with a newer token costs none.
fn broke() -> RetryLayer {
    RetryLayer::new().budget(RetryBudget::new(0.0, 0))
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn refused_tokens_fail_few_calls_of_an_hour_or_none() {
    let revoked_after_a_renewal = |age: Duration, now: Duration| {
        let since = now.checked_sub(secs(3_000));
        since.is_none_or(|since| age <= since)
    };
    let hours = [
        Hour::random(1, 35),
        Hour::random(25, 3_599),
        Hour::behind(2, 300),
        Hour::behind(6, 300),
        Hour::behind(2, 3_600),
        Hour::behind(6, 3_600),
        Hour::behind(20, 3_600),
        Hour::early(5, INVALID),
        Hour::early(5, ""),
        Hour::early(5, "Unauthorized"),
        Hour::early(5, "<html>401</html>"),
        Hour::early(5, "{}"),
        Hour::early(20, INVALID),
        // The renewed token is as dead as the one that it was to replace.
        Hour {
            life: 3_600,
            ..Hour::new("a revocation", revoked_after_a_renewal)
        },
    ];
    let threads = hours.map(|hour| thread::spawn(|| paused(7).block_on(hour.run())));
    for thread in threads {
        thread.join().expect("the hour is as expected");
    }
}

fn status(status: u16, body: &'static str) -> Result<Response<Full<Bytes>>, BoxError> {
    let response = Response::builder().status(status);
    Ok(response.body(Full::from(body))?)
}

#[tokio::test(start_paused = true)]
async fn limit_refusals_cost_no_budget_and_failures_do() {
    for (refusal, attempts) in [(416, 3), (423, 3), (429, 3), (503, 1)] {
        let service = fake(move |request| match request.method() == "POST" {
            true => Ok(token(1, 86_400)),
            false => status(refusal, ""),
        });
        let error = whole(broke(), service).oneshot(data()).await.map(drop);
        let error = error.expect_err("it always refuses");
        assert_eq!(error.attempts(), attempts, "{refusal}");
        let gave_up = if attempts == 1 {
            GiveUp::Budget
        } else {
            GiveUp::Attempts
        };
        assert_eq!(error.gave_up(), Some(gave_up), "{refusal}");
    }
}
