//! The script grants exactly when the limiter of one process does.

use std::{convert::Infallible, future::poll_fn, pin::Pin, task::Poll, time::Duration};

use http::Response;
use proptest::prelude::*;
use tokio::sync::oneshot;
use tokio_test::task;
use tower::{Layer, Service, service_fn};
use tower_tds_limits::{Burst, Error, Limiter, Limits, Quota, RequestLimitLayer, Rules, Rung};

use crate::store::{DEFAULT, Store, Told};

#[derive(Debug, Clone, Copy)]
enum Step {
    /// So often so many microseconds.
    Pass(u32, u32),
    Ask,
    /// The answer to the one of so many.
    Answer(usize, Said),
    /// Who waits for its answer has had enough of it.
    Lose(usize),
}

#[derive(Debug, Clone, Copy)]
enum Said {
    Accepted,
    Refused,
    /// For so many seconds.
    QuotaExceeded(u8),
}

/// Calls, and answers that say nothing of the limits.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..60_000_u32).prop_map(|micros| Step::Pass(1, micros)),
        1 => (0..1_500_000_u32).prop_map(|micros| Step::Pass(1, micros)),
        8 => Just(Step::Ask),
        6 => any::<usize>().prop_map(|which| Step::Answer(which, Said::Accepted)),
    ];
    prop::collection::vec(step, 0..400)
}

/// Refusals, pauses, calls without an answer, and times in which nothing happens, too.
fn troubles() -> impl Strategy<Value = Vec<Step>> {
    let said = prop_oneof![
        16 => Just(Said::Accepted),
        2 => Just(Said::Refused),
        1 => (1..70_u8).prop_map(Said::QuotaExceeded),
    ];
    let step = prop_oneof![
        20 => (0..60_000_u32).prop_map(|micros| Step::Pass(1, micros)),
        10 => (0..1_500_000_u32).prop_map(|micros| Step::Pass(1, micros)),
        2 => (0..80_u32).prop_map(|times| Step::Pass(times, 15_000_000)),
        60 => Just(Step::Ask),
        50 => (any::<usize>(), said).prop_map(|(which, said)| Step::Answer(which, said)),
        4 => any::<usize>().prop_map(Step::Lose),
    ];
    prop::collection::vec(step, 0..600)
}

type Call = Pin<Box<dyn Future<Output = Result<(), Error<Infallible>>>>>;

/// Runs both beside each other, and says at which step they first differ.
fn differ(limits: Limits, terms: &str, steps: &[Step]) -> Result<(), TestCaseError> {
    differ_by(limits, terms, Duration::ZERO, LONGEST_TRY, steps)
}

/// The same, where the limiter may open so much later than the script, and no call takes so long.
fn differ_by(
    limits: Limits,
    terms: &str,
    later: Duration,
    longest: i64,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut store = Store::new(terms);
        store.rung = rung(limits.start).try_into().expect("a rung");
        let told = |told: &[Told]| store.ask("1", 0, told).expect("the same terms");
        let limiter = Limiter::new(limits);
        let service = service_fn(async |answer: oneshot::Receiver<Said>| {
            Ok::<_, Infallible>(response(answer.await.expect("it is said")))
        });
        let layer = RequestLimitLayer::new(limiter.clone()).max_wait(Duration::ZERO);
        let mut limited = layer.layer(service);
        let mut clock = 1_000_000_000_000_i64;
        let mut under_way: Vec<(i64, i64, oneshot::Sender<Said>, task::Spawn<Call>)> = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            match *step {
                Step::Pass(times, micros) => {
                    let ends = clock + i64::from(times) * i64::from(micros);
                    let is_long = |(_, since, ..): &(_, i64, _, _)| since + longest <= ends;
                    while let Some(at) = under_way.iter().position(is_long) {
                        let (id, _, answer, mut call) = under_way.swap_remove(at);
                        answer.send(Said::Accepted).expect("it waits");
                        prop_assert!(call.poll().is_ready());
                        told(&[Told::Proven(id, "a", 0)]);
                    }
                    for _ in 0..times {
                        tokio::time::advance(Duration::from_micros(micros.into())).await;
                        clock += i64::from(micros);
                        store.move_to(clock);
                        // No call is as long as a lease is kept by itself.
                        let kept = under_way.iter().map(|(id, ..)| Told::Kept(*id));
                        told(&kept.collect::<Vec<_>>());
                    }
                }
                Step::Ask => {
                    // It looks at its clock, as the script does.
                    let _looked = limiter.snapshot();
                    let (answer, answered) = oneshot::channel();
                    let ready = poll_fn(|cx| {
                        Service::<oneshot::Receiver<Said>>::poll_ready(&mut limited, cx)
                    });
                    prop_assert!(task::spawn(ready).poll().is_ready());
                    let call = limited.call(answered);
                    let call: Call = Box::pin(async { call.await.map(drop) });
                    let mut call = task::spawn(call);
                    let opens = match call.poll() {
                        Poll::Pending => None,
                        Poll::Ready(Err(Error::Limit(error))) => Some(error.retry_after()),
                        Poll::Ready(_) => return Err(TestCaseError::fail("nobody has answered")),
                    };
                    let reply = store.ask("1", 1, &[]).expect("the same terms");
                    let what = format!("step {at}: {opens:?} {reply:?} {:?}", limiter.snapshot());
                    match (opens, reply.granted.first()) {
                        (None, Some(&id)) => under_way.push((id, clock, answer, call)),
                        (Some(_), None) => drop(told(&[])),
                        (Some(opens), Some(&id)) => {
                            prop_assert!(opens.is_some_and(|opens| opens <= later), "{what}");
                            told(&[Told::Unsent(id)]);
                        }
                        (None, None) => return Err(TestCaseError::fail(what)),
                    }
                    prop_assert_eq!(rung(limiter.snapshot().rung), reply.rung, "{}", what);
                    if !later.is_zero() {
                        // What is granted without a look is dated by the next one.
                        tokio::time::advance(Duration::from_micros(1)).await;
                        clock += 1;
                        store.move_to(clock);
                        let _looked = limiter.snapshot();
                    }
                }
                Step::Answer(..) | Step::Lose(_) if under_way.is_empty() => {}
                Step::Answer(which, said) => {
                    let (id, _, answer, mut call) = under_way.swap_remove(which % under_way.len());
                    answer.send(said).expect("it waits");
                    prop_assert!(call.poll().is_ready());
                    told(&[match said {
                        Said::Accepted => Told::Proven(id, "a", 0),
                        Said::Refused => Told::Proven(id, "r", 0),
                        Said::QuotaExceeded(seconds) => {
                            Told::Proven(id, "q", 1_000_000 * i64::from(seconds))
                        }
                    }]);
                }
                Step::Lose(which) => {
                    let (id, ..) = under_way.swap_remove(which % under_way.len());
                    told(&[Told::Lost(id, 10_000_000)]);
                }
            }
        }
        Ok(())
    })
}

fn response(said: Said) -> Response<String> {
    let response = Response::builder();
    let response = match said {
        Said::Accepted => response,
        Said::Refused => response.status(423),
        Said::QuotaExceeded(seconds) => response
            .status(429)
            .header("retry-after", u16::from(seconds)),
    };
    response.body(String::new()).expect("a response")
}

/// As the script numbers it.
fn rung(rung: Rung) -> i64 {
    match rung {
        Rung::Proven => 0,
        Rung::Strict => 1,
        Rung::Serial => 2,
        Rung::Slowed(times) => 2 + i64::from(times),
        _ => -1,
    }
}

fn fifty() -> Limits {
    Limits::new(Quota::per_second(50.try_into().expect("not 0")))
        .in_flight(1_000.try_into().expect("not 0"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    #[test]
    fn the_window(steps in steps()) {
        differ(fifty().rules(Rules::window()), "50 1002000 20000 20040 0 -1 0 0", &steps)?;
    }

    #[test]
    fn the_counter(steps in steps()) {
        differ(fifty().rules(Rules::window().counter()), "50 1002000 20000 20040 1 -1 0 0", &steps)?;
    }

    #[test]
    fn the_bucket(steps in steps()) {
        let rules = Rules::window().bucket(Burst::Of(12));
        differ(fifty().rules(rules), "50 1002000 20000 20040 0 12 0 0", &steps)?;
    }

    /// The limiter may take a grant for one of two milliseconds later: it does not look at the clock for each.
    #[test]
    fn the_pace(steps in steps()) {
        let rules = Rules::window().pace(10.try_into().expect("not 0"));
        differ_by(fifty().rules(rules), "50 1002000 20000 20040 0 -1 10 0", PACED, LONGEST_TRY, &steps)?;
    }

    /// While nothing is under way for so long that an automatic bucket would count it no more: one process knows
    /// the age of its calls roughly, the script exactly.
    #[test]
    fn the_default(steps in steps()) {
        differ_by(fifty(), DEFAULT, PACED, 900_000, &steps)?;
    }

    #[test]
    fn the_window_in_trouble(steps in troubles()) {
        let terms = "50 1002000 20000 20040 0 -1 0 0";
        differ_by(fifty().rules(Rules::window()), terms, STEPPED, LONGEST_TRY, &steps)?;
    }

    #[test]
    fn all_that_prove_in_trouble(steps in troubles()) {
        let rules = Rules::window().counter().bucket(Burst::Of(9));
        differ_by(fifty().rules(rules), "50 1002000 20000 20040 1 9 0 0", STEPPED, LONGEST_TRY, &steps)?;
    }

    #[test]
    fn all_that_prove_where_it_is_slowed(steps in steps()) {
        let rules = Rules::window().counter().bucket(Burst::Of(9));
        let limits = fifty().rules(rules).start_at(Rung::Slowed(1));
        differ_by(limits, "50 1002000 20000 20040 1 9 0 0", STEPPED, LONGEST_TRY, &steps)?;
    }

    #[test]
    fn all_that_prove(steps in steps()) {
        let rules = Rules::window().counter().bucket(Burst::Of(9));
        differ(fifty().rules(rules), "50 1002000 20000 20040 1 9 0 0", &steps)?;
    }
}

const PACED: Duration = Duration::from_micros(2_001);

/// After half a minute another may try whether a pause is over, and of two that do one process believes the last,
/// the script the one that was sent.
const LONGEST_TRY: i64 = 25_000_000;

/// The answer that leads to another rung is spaced by a millisecond more in one process, and by the script the next.
const STEPPED: Duration = Duration::from_micros(1_001);
