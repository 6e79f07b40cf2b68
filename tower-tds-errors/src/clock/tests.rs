//! A wall clock that tests set. Its steps change no wait.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::channel::Channel;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use tokio::time::{Instant, interval};
use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};

use crate::{Attempt, ClassifyLayer, Error, GiveUp, RetryLayer};

type Body = BoxBody<Bytes, BoxError>;

thread_local! {
    /// The frozen wall clock of this thread. `None` is the clock of the machine.
    static WALL: Cell<Option<SystemTime>> = const { Cell::new(None) };
}

pub(super) fn set() -> Option<SystemTime> {
    WALL.get()
}

const DAY: u64 = 86_400;

/// The repeated steps of the wall clock: a day forward, two days back, and one forward.
const JUMPS: [u64; 4] = [2 * DAY, 0, DAY, DAY];

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn day(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + secs(1_800_000_000 + seconds)
}

/// Sets the wall clock ten times a second for as long as `work` takes.
async fn under<T>(jumps: &[u64], work: impl Future<Output = T>) -> T {
    let mut next = jumps.iter().cycle();
    let mut ticks = interval(Duration::from_millis(100));
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            _ = ticks.tick() => WALL.set(next.next().map(|jump| day(*jump))),
            done = &mut work => return done,
        }
    }
}

/// A body that stalls.
fn silent() -> Body {
    let (bytes, body) = Channel::<Bytes, BoxError>::new(1);
    std::mem::forget(bytes);
    body.boxed()
}

fn answer(
    status: u16,
    retry_after: Option<String>,
    body: Body,
) -> Result<Response<Body>, BoxError> {
    let response = Response::builder().status(status);
    let response = match retry_after {
        Some(value) => response.header("retry-after", value),
        None => response,
    };
    Ok(response.body(body).unwrap())
}

/// Runs a call through every kind of wait. Returns when each attempt began and how it ended.
async fn every_wait() -> (Vec<Duration>, Error, Duration) {
    fastrand::seed(7);
    let start = Instant::now();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&seen);
    let service = service_fn(move |request: Request<()>| {
        times.lock().unwrap().push(start.elapsed());
        async move {
            match Attempt::of(request.extensions()) {
                // Without a `Date`, the date in `Retry-After` counts from the wall clock.
                1 => {
                    let date = httpdate::fmt_http_date(super::wall() + secs(20));
                    answer(503, Some(date), Full::default().map_err(Into::into).boxed())
                }
                2 => answer(
                    429,
                    Some("7".to_owned()),
                    Full::default().map_err(Into::into).boxed(),
                ),
                // The read of the error body ends at its bound.
                3 => answer(503, None, silent()),
                // Ends at the deadline.
                _ => std::future::pending().await,
            }
        }
    });
    let stack = ServiceBuilder::new()
        .layer(
            RetryLayer::new()
                .attempts(NonZeroU32::new(9).unwrap())
                .deadline(secs(60)),
        )
        .layer(ClassifyLayer::new())
        .service(service);
    let error = stack.oneshot(Request::new(())).await.map(drop).unwrap_err();
    let seen = seen.lock().unwrap().clone();
    (seen, error, start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn wall_clock_jump_changes_no_wait_or_retry_deadline() {
    let (times, error, took) = under(&[DAY], every_wait()).await;
    assert_eq!(error.gave_up(), Some(GiveUp::Deadline));
    assert_eq!((took, error.elapsed()), (secs(60), Some(secs(60))));
    assert!(times.len() == 4 && times[1] >= secs(20), "{times:?}");
    assert!(times[2] >= times[1] + secs(7), "{times:?}");
    assert!(times[3] >= times[2] + secs(1), "{times:?}");

    let (set, other, took_set) = under(&JUMPS, every_wait()).await;
    assert_eq!((set, took_set), (times, took));
    assert_eq!(other.attempts(), error.attempts());
}
