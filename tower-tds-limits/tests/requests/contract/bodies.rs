//! Bodies that break off.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_tds_limits::{Error, Limiter, Limits, PermitBody, Proof, RequestLimitLayer};

use super::per_second;

/// One piece, and then an error.
#[derive(Debug, Default)]
struct Torn {
    begun: bool,
}

// === impl Torn ===

impl Body for Torn {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if std::mem::replace(&mut self.begun, true) {
            return Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())));
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"bus")))))
    }
}

fn service(
    limiter: &Limiter,
) -> impl Service<Request<()>, Response = Response<PermitBody<Torn>>, Error = Error> {
    ServiceBuilder::new()
        .layer(RequestLimitLayer::new(limiter.clone()))
        .service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(Torn::default())))
}

/// Reads a body that is cut three seconds after its head. Returns how long the one permit of the
/// quota is held from then on.
async fn held_after_the_error(limits: Limits) -> Duration {
    let limiter = Limiter::new(limits.lost_after(Duration::from_secs(4)));
    let response = service(&limiter)
        .oneshot(Request::new(()))
        .await
        .expect("a head");
    let mut body = response.into_body();
    body.frame().await.expect("a piece").expect("the first");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(limiter.snapshot().in_flight, 1);
    body.frame().await.expect("a piece").expect_err("an error");
    assert_eq!(limiter.snapshot().in_flight, 0);
    drop(body);
    assert_eq!(limiter.snapshot().in_flight, 0, "freed once");
    let broken_off = Instant::now();
    let next = service(&limiter)
        .oneshot(Request::new(()))
        .await
        .expect("a head");
    drop(next);
    broken_off.elapsed()
}

#[tokio::test(start_paused = true)]
async fn broken_body_frees_the_slot_at_once() {
    let held = held_after_the_error(per_second(1)).await;
    assert_eq!(held, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn broken_body_counts_as_lost_with_proof_end() {
    let held = held_after_the_error(per_second(1).proof(Proof::End)).await;
    assert_eq!(held, Duration::from_millis(4_000 + 1_002));
}
