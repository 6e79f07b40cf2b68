//! Tokens refused with and without a reason: the requests that are sent again, and their tokens.

use std::{
    future::ready,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tds_sim::{Config, Sim};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_tds::{
    Credentials, Error, Kind, Limiter, Limits, TdsLayer,
    layers::{
        errors::{ClassifyLayer, GiveUp, RetryBudget, RetryLayer},
        limits::PermitBody,
        token::{BearerAuthLayer, Origin, TokenEndpoint, TokenSource},
    },
};

/// A service that refuses each call with these words, and its tokens: `POST` for each that it issues.
fn refusing(body: &'static str) -> (Fake, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let log = Arc::clone(&seen);
    let service = fake(move |request| {
        let mut log = log.lock().expect("no panic");
        if request.method() == "POST" {
            log.push("POST".to_owned());
            let number = log.iter().filter(|seen| *seen == "POST").count();
            return Ok(token(number, 86_400));
        }
        let token = request.headers()["authorization"].to_str().expect("ASCII");
        log.push(token.replace("Bearer ", ""));
        status(401, body)
    });
    (service, seen)
}

#[tokio::test(start_paused = true)]
async fn a_401_causes_one_new_token_and_few_retries() {
    for body in ["invalid token\n", "go away", ""] {
        let (service, seen) = refusing(body);
        let stack = whole_with(RetryLayer::new(), service);
        let mut attempts = Vec::new();
        for _ in 0..4 {
            let error = stack.clone().oneshot(data()).await.map(drop);
            let error = error.expect_err("all tokens are refused");
            assert_eq!(error.kind(), Kind::InvalidToken, "{body}");
            let text = error.to_string();
            assert!(text.contains("refused"), "{text}");
            assert!(!text.contains("forbidden"), "{text}");
            attempts.push(error.attempts());
            sleep(Duration::from_secs(60)).await;
        }
        // While tokens are young, a clock may be behind, so each call is sent once more after two seconds.
        let few = attempts.iter().all(|it| (2..=3).contains(it));
        assert!(few, "{body}: {attempts:?}");
        let seen = seen.lock().expect("no panic").join(" ");
        // One other token in the first minutes, and both in turn.
        assert!(seen.starts_with("POST t1 POST t2 t1 t2"), "{body}: {seen}");
        assert_eq!(seen.matches("POST").count(), 2, "{body}: {seen}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_401_about_role_or_header_requests_no_token() {
    let outage = "accessing introspection endpoint failed";
    for (body, kind, attempts, posts) in [
        (
            "no Authorization header found",
            Kind::MissingCredentials,
            1,
            1,
        ),
        ("Missing required realm role", Kind::MissingRole, 1, 1),
        // Any other 401 may be about the token, and this one is retried as an outage.
        (outage, Kind::Unavailable, 3, 2),
    ] {
        let (service, seen) = refusing(body);
        let stack = whole_with(RetryLayer::new(), service);
        let error = stack.oneshot(data()).await.map(drop).expect_err(body);
        assert_eq!((error.kind(), error.attempts()), (kind, attempts), "{body}");
        let seen = seen.lock().expect("no panic").join(" ");
        assert_eq!(seen.matches("POST").count(), posts, "{body}: {seen}");
    }
}

/// Whether a call succeeds after the token was revoked and another call found that out, and how
/// many tokens were requested. A layer below has read the responses into errors.
async fn after_a_revocation() -> (bool, u64) {
    let sim = Sim::new(Config::default());
    let endpoint = TokenEndpoint::keycloak("https://auth.example.org", "ServiceConnect");
    let credentials = Credentials::new(sim.client_id(), sim.client_secret()).expect("usable");
    let tokens = TokenSource::builder(endpoint.expect("a URL"), credentials);
    let same = |request: Request<Full<Bytes>>| request;
    let tokens = tokens.build(tower::util::MapRequest::new(sim.clone(), same));
    let origin = Origin::from_uri(&"https://data.example.org".parse().expect("a URL"));
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new())
        .layer(BearerAuthLayer::new(tokens, [origin.expect("an origin")]))
        .layer(ClassifyLayer::new())
        .map_err(BoxError::from)
        .service(sim.clone());
    let get = || {
        let request = Request::get("https://data.example.org/v1/live/bus");
        let request = request.body(Full::<Bytes>::default());
        stack.clone().oneshot(request.expect("a request"))
    };
    get().await.expect("data");
    // Old enough, so that its expiry is a new event.
    sleep(Duration::from_secs(120)).await;
    sim.revoke_all();
    drop(get().await);
    sleep(Duration::from_secs(1)).await;
    let healed = get().await.is_ok();
    (healed, sim.ledger().summary().token_posts)
}

/// A stack without a line about outcomes: the typed error carries what it means for the token.
#[tokio::test(start_paused = true)]
async fn hand_built_layers_replace_a_revoked_token_without_a_line_of_the_user() {
    assert_eq!(after_a_revocation().await, (true, 2));
}

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
fn whole(service: Fake) -> Stack {
    // A resend with a newer token costs no budget.
    whole_with(RetryLayer::new().budget(RetryBudget::new(0.0, 0)), service)
}

fn whole_with(retry: RetryLayer, service: Fake) -> Stack {
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

/// A service whose tokens are numbered and dated. `accepts` decides by the age of the token.
/// `refusal` is the body of its 401.
fn judging(
    accepts: impl Fn(Duration) -> bool + Clone + Send + Sync + 'static,
    life: u64,
    refusal: &'static str,
) -> Fake {
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
        match accepts(issued[number].elapsed()) {
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

/// Makes 20 calls a second for an hour and returns the failed ones of 72,000, and the last error.
async fn failed_of_an_hour(stack: Stack) -> (u32, Option<Error>) {
    let mut calls = JoinSet::new();
    let (mut failed, mut last) = (0, None);
    for _ in 0..72_000 {
        calls.spawn(stack.clone().oneshot(data()));
        sleep(Duration::from_millis(50)).await;
        while let Some(ended) = calls.try_join_next() {
            if let Err(error) = ended.expect("no panic") {
                failed += 1;
                last = Some(error);
            }
        }
    }
    (failed, last)
}

#[tokio::test(start_paused = true)]
async fn random_refusals_reach_few_callers() {
    // The share of refused calls, in percent, and the most that may fail.
    for (share, most) in [(1, 72), (25, 7_200)] {
        let rng = Arc::new(Mutex::new(fastrand::Rng::with_seed(7)));
        let accepts = move |_| rng.lock().expect("no panic").u32(0..100) >= share;
        let stack = whole_with(RetryLayer::new(), judging(accepts, 86_400, INVALID));
        let (failed, last) = failed_of_an_hour(stack).await;
        assert!(failed < most, "{share} %: {failed}");
        if let Some(last) = last {
            let text = last.to_string();
            assert!(text.contains("refused"), "{text}");
            assert!(!text.contains("forbidden"), "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_whose_clock_is_behind_fails_no_call_at_a_renewal() {
    for behind in [2, 6, 20] {
        // Many renewals in an hour, of tokens that were accepted until then.
        for life in [300, 3_600] {
            let start = Instant::now();
            let accepts = move |age: Duration| {
                age >= Duration::from_secs(behind) || start.elapsed() < Duration::from_secs(60)
            };
            let stack = whole_with(RetryLayer::new(), judging(accepts, life, INVALID));
            let (failed, last) = failed_of_an_hour(stack).await;
            // A tenth of what is left of a token of 300 s is 6 to 9 s.
            if behind <= 6 || life > 300 {
                assert_eq!(failed, 0, "{behind} s, {life} s: {last:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cold_start_waits_for_a_clock_that_is_two_seconds_behind() {
    let accepts = |age| age >= Duration::from_secs(2);
    let stack = whole_with(RetryLayer::new(), judging(accepts, 86_400, INVALID));
    let start = Instant::now();
    let answered = stack.oneshot(data()).await;
    answered.map(drop).expect("data");
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

fn status(status: u16, body: &'static str) -> Result<Response<Full<Bytes>>, BoxError> {
    let response = Response::builder().status(status);
    Ok(response.body(Full::from(body))?)
}

#[tokio::test(start_paused = true)]
async fn token_endpoint_401_names_the_token_endpoint() {
    let error = whole(fake(|_| status(401, "go away")))
        .oneshot(data())
        .await
        .map(drop);
    let error = error.expect_err("there is no token");
    for line in [
        error.to_string(),
        format!("{error:#}"),
        format!("{error:?}"),
    ] {
        assert!(line.contains("https://auth.example.org/"), "{line}");
        assert!(!line.contains("401 Unauthorized"), "{line}");
        assert!(!line.contains("data.example.org"), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn early_expired_tokens_fail_no_call_for_any_401_body() {
    for body in [INVALID, "", "Unauthorized", "<html>401</html>", "{}"] {
        for minutes in [5, 20] {
            let accepts = move |age| age < Duration::from_secs(60 * minutes);
            let stack = whole(judging(accepts, 86_400, body));
            let (failed, last) = failed_of_an_hour(stack).await;
            assert_eq!(failed, 0, "{body}, {minutes} min: {last:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn limit_refusals_cost_no_budget_and_failures_do() {
    for (refusal, attempts) in [(416, 3), (423, 3), (429, 3), (503, 1)] {
        let service = fake(move |request| match request.method() == "POST" {
            true => Ok(token(1, 86_400)),
            false => status(refusal, ""),
        });
        let error = whole(service).oneshot(data()).await.map(drop);
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

/// The renewed token is as dead as the one that it was to replace.
#[tokio::test(start_paused = true)]
async fn a_revocation_after_a_renewal_fails_no_call() {
    let revoked = Duration::from_secs(3_000);
    let start = Instant::now();
    let accepts = move |age: Duration| {
        let since = start.elapsed().checked_sub(revoked);
        since.is_none_or(|since| age <= since)
    };
    let stack = whole(judging(accepts, 3_600, INVALID));
    let (failed, last) = failed_of_an_hour(stack).await;
    assert_eq!(failed, 0, "{last:?}");
}

/// Issues tokens, and refuses those that were issued before the role was granted.
#[tokio::test(start_paused = true)]
async fn a_role_that_was_granted_meanwhile_fails_no_call() {
    let granted = Duration::from_secs(200);
    let start = Instant::now();
    let accepts = move |age: Duration| {
        let since = start.elapsed().checked_sub(granted);
        since.is_some_and(|since| age <= since)
    };
    let stack = whole(judging(accepts, 86_400, "Missing required realm role"));
    let before = stack.clone().oneshot(data()).await.map(drop);
    let before = before.expect_err("the role is missing");
    assert_eq!((before.kind(), before.attempts()), (Kind::MissingRole, 1));
    sleep(Duration::from_secs(301)).await;
    let after = stack.oneshot(data()).await;
    after.map(drop).expect("the role was granted");
}
