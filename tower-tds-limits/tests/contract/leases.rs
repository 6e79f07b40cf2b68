//! Limits that several processes keep: a request is sent when it has its lease, and says what came of it.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::oneshot;
use tokio_test::{assert_pending, assert_ready, task};
use tower::{Layer, Service, service_fn, util::BoxService};
use tower_tds_limits::{
    AskLease, Ended, Error, Lease, LeaseFuture, Leases, LimitError, Limiter, Outcome, Proof,
    RequestLimitLayer, WaitCause,
};

use super::per_second;

/// What was asked and said, and who still waits.
#[derive(Debug, Clone, Default)]
struct Desk(Arc<Mutex<Files>>);

#[derive(Debug, Default)]
struct Files {
    asked: Vec<AskLease>,
    waiting: VecDeque<oneshot::Sender<Result<Paper, LimitError>>>,
    ended: Vec<Ended>,
}

#[derive(Debug)]
struct Paper {
    desk: Desk,
    over: oneshot::Receiver<()>,
}

impl Desk {
    /// Grants the next its lease; what it gives ends that.
    fn grant(&self) -> oneshot::Sender<()> {
        let (end, over) = oneshot::channel();
        let desk = self.clone();
        self.answer(Ok(Paper { desk, over }));
        end
    }

    fn answer(&self, answer: Result<Paper, LimitError>) {
        let next = self.files(|files| files.waiting.pop_front());
        next.expect("one waits").send(answer).expect("it is there");
    }

    fn files<T>(&self, read: impl FnOnce(&mut Files) -> T) -> T {
        read(&mut self.0.lock().expect("nobody panics"))
    }

    fn ended(&self) -> Vec<Ended> {
        self.files(|files| std::mem::take(&mut files.ended))
    }

    fn gone(&self) -> bool {
        self.files(|files| files.waiting.iter().all(oneshot::Sender::is_closed))
    }
}

impl Leases for Desk {
    fn lease(&self, ask: AskLease) -> LeaseFuture {
        let (sender, granted) = oneshot::channel();
        self.files(|files| {
            files.asked.push(ask);
            files.waiting.push_back(sender);
        });
        Box::pin(async move {
            let paper = granted.await.expect("the desk stays")?;
            let lease: Box<dyn Lease> = Box::new(paper);
            Ok(lease)
        })
    }
}

impl Lease for Paper {
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Let go is kept.
        match Pin::new(&mut self.over).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }

    fn end(self: Box<Self>, ended: Ended) {
        self.desk.files(|files| files.ended.push(ended));
    }
}

type Answer = Result<(StatusCode, &'static str), std::io::Error>;
type Asked = oneshot::Sender<Answer>;

/// A service whose requests wait until they are answered, and the requests that it has seen.
struct Seen(Arc<Mutex<VecDeque<Asked>>>);

impl Seen {
    fn service(&self) -> BoxService<Request<()>, Response<String>, std::io::Error> {
        let seen = Arc::clone(&self.0);
        BoxService::new(service_fn(move |_: Request<()>| {
            let (answer, answered) = oneshot::channel::<Answer>();
            seen.lock().expect("nobody panics").push_back(answer);
            async move {
                let (status, body) = answered.await.expect("the test stays")?;
                let mut response = Response::new(body.to_owned());
                *response.status_mut() = status;
                Ok(response)
            }
        }))
    }

    fn next(&self) -> Option<Asked> {
        self.0.lock().expect("nobody panics").pop_front()
    }
}

fn seen() -> Seen {
    Seen(Arc::default())
}

async fn ready<S: Service<Request<()>, Error: std::fmt::Debug>>(service: &mut S) {
    let ready = std::future::poll_fn(|cx| service.poll_ready(cx));
    ready.await.expect("it is ready");
}

fn limiter(desk: &Desk) -> Limiter {
    Limiter::leased(per_second(2), desk.clone())
}

#[tokio::test(start_paused = true)]
async fn a_request_is_sent_when_it_has_its_lease_and_says_what_was_answered() {
    let (desk, seen) = (Desk::default(), seen());
    let limiter = limiter(&desk);
    let layer = RequestLimitLayer::new(limiter.clone()).max_wait(Duration::from_secs(7));
    let mut service = layer.layer(seen.service());
    let answers = [
        (StatusCode::OK, Outcome::Answered),
        (StatusCode::LOCKED, Outcome::RateExceeded),
        (StatusCode::TOO_MANY_REQUESTS, Outcome::QuotaExceeded(None)),
    ];
    for (status, outcome) in answers {
        ready(&mut service).await;
        let mut call = task::spawn(service.call(Request::new(())));
        assert_pending!(call.poll());
        assert!(seen.next().is_none(), "sent without a lease");
        let now = limiter.snapshot();
        assert_eq!((now.waiting, now.waits_for), (1, Some(WaitCause::Lease)));
        tokio::time::advance(Duration::from_secs(3)).await;
        let end = desk.grant();
        assert!(call.is_woken());
        assert_pending!(call.poll());
        let asked = seen.next().expect("it is sent");
        asked.send(Ok((status, "bus 307"))).expect("it waits");
        assert!(assert_ready!(call.poll()).is_ok());
        assert_eq!(desk.ended(), [Ended::Proven(outcome)]);
        drop(end);
    }
    let snapshot = limiter.snapshot();
    let (_, waited) = snapshot
        .waits()
        .find(|(cause, _)| *cause == WaitCause::Lease)
        .expect("each cause");
    assert_eq!((waited.count, waited.total), (3, Duration::from_secs(9)));
    let asked = desk.files(|files| files.asked.first().copied());
    let asked = asked.expect("it was asked");
    assert_eq!(
        (asked.first_in_line, asked.max_wait),
        (false, Some(Duration::from_secs(7)))
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_or_refused_without_its_lease_has_sent_nothing() {
    let (desk, seen) = (Desk::default(), seen());
    let limiter = limiter(&desk);
    let mut service = RequestLimitLayer::new(limiter.first_in_line()).layer(seen.service());
    for round in 0..4 {
        ready(&mut service).await;
        let mut call = task::spawn(service.call(Request::new(())));
        assert_pending!(call.poll());
        if round % 2 == 0 {
            drop(call);
            assert!(desk.gone(), "it is not waited for");
            desk.files(|files| files.waiting.clear());
        } else {
            desk.answer(Err(LimitError::rejected(WaitCause::Lease, None)));
            let error = assert_ready!(call.poll()).expect_err("it is refused");
            assert!(matches!(error, Error::Limit(ref limit) if limit.cause() == WaitCause::Lease));
        }
        let now = limiter.snapshot();
        assert_eq!(
            (now.live, now.in_flight, now.waiting),
            (0, 0, 0),
            "round {round}"
        );
    }
    assert!(seen.next().is_none());
    assert_eq!(desk.ended(), []);
    assert!(desk.files(|files| files.asked.iter().all(|asked| asked.first_in_line)));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_lease_could_not_be_kept_ends_and_may_have_been_counted() {
    let (desk, seen) = (Desk::default(), seen());
    let limiter = limiter(&desk);
    let mut service = RequestLimitLayer::new(limiter.clone()).layer(seen.service());
    ready(&mut service).await;
    let mut call = task::spawn(service.call(Request::new(())));
    assert_pending!(call.poll());
    let end = desk.grant();
    assert_pending!(call.poll());
    let asked = seen.next().expect("it is sent");
    end.send(()).expect("it is held");
    assert!(call.is_woken());
    let Error::Limit(error) = assert_ready!(call.poll()).expect_err("it is ended") else {
        panic!("by the limit");
    };
    assert!(error.was_sent(), "{error}");
    assert!(asked.is_closed(), "the request goes on");
    assert_eq!(desk.ended(), [Ended::Within(Duration::from_secs(10))]);
    assert_eq!(limiter.snapshot().live, 1);
}

/// Nobody has polled it for long: what it would send now, nothing counts any more.
#[tokio::test(start_paused = true)]
async fn a_call_whose_lease_is_over_is_not_polled_again_even_if_its_answer_is_there() {
    let (desk, seen) = (Desk::default(), seen());
    let mut service = RequestLimitLayer::new(limiter(&desk)).layer(seen.service());
    ready(&mut service).await;
    let mut call = task::spawn(service.call(Request::new(())));
    assert_pending!(call.poll());
    let end = desk.grant();
    assert_pending!(call.poll());
    let asked = seen.next().expect("it is sent");
    asked
        .send(Ok((StatusCode::OK, "bus 307")))
        .expect("it waits");
    end.send(()).expect("it is held");
    let Error::Limit(error) = assert_ready!(call.poll()).expect_err("it is ended") else {
        panic!("by the limit");
    };
    assert!(error.was_sent(), "{error}");
    assert_eq!(desk.ended(), [Ended::Within(Duration::from_secs(10))]);
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_is_counted_within_a_time_and_an_end_is_told_with_what_the_head_said() {
    let (desk, seen) = (Desk::default(), seen());
    let limiter = Limiter::leased(per_second(9).proof(Proof::End), desk.clone());
    let mut service = RequestLimitLayer::new(limiter).layer(seen.service());
    for answer in [
        Err(std::io::ErrorKind::ConnectionReset.into()),
        Ok((StatusCode::LOCKED, "too many")),
    ] {
        ready(&mut service).await;
        let mut call = task::spawn(service.call(Request::new(())));
        assert_pending!(call.poll());
        let end = desk.grant();
        assert_pending!(call.poll());
        seen.next()
            .expect("it is sent")
            .send(answer)
            .expect("it waits");
        match assert_ready!(call.poll()) {
            Err(_) => assert_eq!(desk.ended(), [Ended::Within(Duration::from_secs(10))]),
            Ok(response) => {
                assert_eq!(desk.ended(), [], "its body is to come");
                response
                    .into_body()
                    .collect()
                    .await
                    .expect("the whole body");
                assert_eq!(desk.ended(), [Ended::Proven(Outcome::RateExceeded)]);
            }
        }
        drop(end);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_comes_in_a_silence_or_a_pause_goes_back_and_is_asked_for_again_after_it() {
    for refusal in [StatusCode::LOCKED, StatusCode::TOO_MANY_REQUESTS] {
        let (desk, seen) = (Desk::default(), seen());
        let layer = RequestLimitLayer::new(limiter(&desk)).max_wait(Duration::from_secs(5));
        let (mut first, mut second) = (layer.layer(seen.service()), layer.layer(seen.service()));
        ready(&mut first).await;
        ready(&mut second).await;
        let mut refused = task::spawn(first.call(Request::new(())));
        let mut waits = task::spawn(second.call(Request::new(())));
        assert_pending!(refused.poll());
        assert_pending!(waits.poll());
        let _first = desk.grant();
        assert_pending!(refused.poll());
        let asked = seen.next().expect("it is sent");
        tokio::time::advance(Duration::from_secs(1)).await;
        asked.send(Ok((refusal, "too many"))).expect("it waits");
        assert!(assert_ready!(refused.poll()).is_ok());
        assert_eq!(desk.ended().len(), 1);

        drop(desk.grant());
        assert_pending!(waits.poll());
        assert!(seen.next().is_none(), "sent into the {refusal}");
        assert_eq!(desk.ended(), [Ended::Unsent]);

        tokio::time::sleep(Duration::from_millis(1_100)).await;
        assert!(waits.is_woken());
        assert_pending!(waits.poll());
        let again = desk.files(|files| files.asked.last().copied());
        let again = again.expect("it was asked again");
        // Of the five seconds that it may wait, from its call on.
        assert!(again.max_wait < Some(Duration::from_secs(3)), "{again:?}");
        drop(desk.grant());
        assert_pending!(waits.poll());
        assert!(seen.next().is_some(), "it is over");
    }
}
