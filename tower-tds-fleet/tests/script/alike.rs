//! The script grants exactly when the limiter of one process does.

use std::{convert::Infallible, future::poll_fn, time::Duration};

use http::Response;
use proptest::prelude::*;
use tokio::sync::oneshot;
use tokio_test::task;
use tower::{Layer, Service, service_fn};
use tower_tds_limits::{Burst, Limiter, Limits, Quota, RequestLimitLayer, Rules};

use crate::store::{Store, Told};

#[derive(Debug, Clone, Copy)]
enum Step {
    Pass(u32),
    Ask,
    /// The answer to the one of so many.
    Answer(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..60_000_u32).prop_map(Step::Pass),
        1 => (0..1_500_000_u32).prop_map(Step::Pass),
        8 => Just(Step::Ask),
        6 => any::<usize>().prop_map(Step::Answer),
    ];
    prop::collection::vec(step, 0..400)
}

/// Runs both beside each other, and says at which step they first differ.
fn differ(limits: Limits, terms: &str, steps: &[Step]) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let store = Store::new(terms);
        let limiter = Limiter::new(limits);
        let service = service_fn(async |answer: oneshot::Receiver<()>| {
            let _answered = answer.await;
            Ok::<_, Infallible>(Response::new(String::new()))
        });
        let layer = RequestLimitLayer::new(limiter).max_wait(Duration::ZERO);
        let mut limited = layer.layer(service);
        let mut clock = 1_000_000_000_000_i64;
        let mut under_way: Vec<(i64, oneshot::Sender<()>, _)> = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            match *step {
                Step::Pass(micros) => {
                    tokio::time::advance(Duration::from_micros(micros.into())).await;
                    clock += i64::from(micros);
                    store.move_to(clock);
                    // A lease of one process has no end.
                    let open = under_way.iter();
                    let kept: Vec<_> = open.map(|(id, ..)| Told::Kept(*id)).collect();
                    store.ask("1", 0, &kept).expect("the same terms");
                }
                Step::Ask => {
                    let (answer, answered) = oneshot::channel();
                    let ready = poll_fn(|cx| {
                        Service::<oneshot::Receiver<()>>::poll_ready(&mut limited, cx)
                    });
                    prop_assert!(task::spawn(ready).poll().is_ready());
                    let mut call = task::spawn(limited.call(answered));
                    let passed = call.poll().is_pending();
                    let reply = store.ask("1", 1, &[]).expect("the same terms");
                    // The pace of one process may begin a moment later: it does not look at the clock for
                    // each grant, and proves nothing.
                    let paced = !terms.ends_with(" 0 0");
                    let granted = reply.granted.first();
                    prop_assert!(
                        passed == granted.is_some() || paced && !passed,
                        "step {at}: {reply:?}"
                    );
                    match granted {
                        Some(&id) if passed => under_way.push((id, answer, call)),
                        Some(&id) => drop(
                            store
                                .ask("1", 0, &[Told::Unsent(id)])
                                .expect("the same terms"),
                        ),
                        None => drop(store.ask("1", 0, &[]).expect("the same terms")),
                    }
                }
                Step::Answer(_) if under_way.is_empty() => {}
                Step::Answer(which) => {
                    let (id, answer, mut call) = under_way.swap_remove(which % under_way.len());
                    answer.send(()).expect("it waits");
                    prop_assert!(call.poll().is_ready());
                    store
                        .ask("1", 0, &[Told::Proven(id, "a", 0)])
                        .expect("the same terms");
                }
            }
        }
        Ok(())
    })
}

fn fifty() -> Limits {
    Limits::new(Quota::per_second(50.try_into().expect("not 0")))
        .in_flight(1_000.try_into().expect("not 0"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

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

    #[test]
    fn the_pace(steps in steps()) {
        let rules = Rules::window().pace(10.try_into().expect("not 0"));
        differ(fifty().rules(rules), "50 1002000 20000 20040 0 -1 10 0", &steps)?;
    }

    #[test]
    fn all_that_prove(steps in steps()) {
        let rules = Rules::window().counter().bucket(Burst::Of(9));
        differ(fifty().rules(rules), "50 1002000 20000 20040 1 9 0 0", &steps)?;
    }
}
