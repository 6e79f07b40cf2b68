//! The limiters, each as its own documentation uses it.

use std::{io, num::NonZeroU32, time::Duration};

use bytes::Bytes;
use governor::{
    Quota, RateLimiter,
    clock::Clock,
    middleware::NoOpMiddleware,
    nanos::Nanos,
    state::{InMemoryState, NotKeyed},
};
use http::Request;
use http_body_util::Empty;
use tokio::{
    runtime,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower::{Layer, Service, ServiceExt, buffer::Buffer, limit::RateLimit, limit::rate::Rate};
use tower_tds_limits::{Limits, RequestLimitLayer};

use crate::network::Counting;

/// Whose picture is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limiter {
    Ours,
    Tower,
    GovernorBurst,
    GovernorPace,
}

// === impl Limiter ===

impl Limiter {
    pub(crate) const ALL: [Self; 4] = [
        Self::Ours,
        Self::Tower,
        Self::GovernorBurst,
        Self::GovernorPace,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "tower-tds-limits",
            Self::Tower => "tower RateLimit in a Buffer",
            Self::GovernorBurst => "governor, 50 a second",
            Self::GovernorPace => "governor, one every 20 ms",
        }
    }
}

/// Gives when the service counted the requests that the limiter let through in [`TIME`].
pub(crate) fn run(limiter: Limiter) -> io::Result<Vec<Duration>> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    Ok(runtime.block_on(async {
        let service = Counting::new();
        // What is still under way at the end is not drawn.
        let work = async {
            match limiter {
                Limiter::Ours => {
                    let limiter = tower_tds_limits::Limiter::new(Limits::default());
                    call_always(RequestLimitLayer::new(limiter).layer(service.clone())).await;
                }
                Limiter::Tower => {
                    let rate = Rate::new(50, Duration::from_secs(1));
                    call_always(Buffer::new(RateLimit::new(service.clone(), rate), 200)).await;
                }
                Limiter::GovernorBurst => {
                    let quota = Quota::per_second(FIFTY);
                    call_when_it_says(quota, service.clone()).await;
                }
                Limiter::GovernorPace => {
                    let quota = Quota::per_second(FIFTY).allow_burst(NonZeroU32::MIN);
                    call_when_it_says(quota, service.clone()).await;
                }
            }
        };
        drop(timeout(TIME, work).await);
        service.arrivals()
    }))
}

/// Two hundred tasks, one call after the other.
async fn call_always<S>(service: S)
where
    S: Service<Request<Empty<Bytes>>> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Send,
{
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let service = service.clone();
        tasks.spawn(async move {
            while service
                .clone()
                .oneshot(Request::new(Empty::new()))
                .await
                .is_ok()
            {}
        });
    }
    tasks.join_all().await;
}

/// As governor's guide has it: check, and sleep until it says.
async fn call_when_it_says(quota: Quota, service: Counting) {
    let clock = Paused {
        begin: Instant::now(),
    };
    let limiter: RateLimiter<NotKeyed, InMemoryState, Paused, NoOpMiddleware<Nanos>> =
        RateLimiter::direct_with_clock(quota, clock);
    let limiter = std::sync::Arc::new(limiter);
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (limiter, service) = (std::sync::Arc::clone(&limiter), service.clone());
        tasks.spawn(async move {
            loop {
                while let Err(not_until) = limiter.check() {
                    sleep(not_until.wait_time_from(clock.now())).await;
                }
                drop(service.clone().oneshot(Request::new(Empty::new())).await);
            }
        });
    }
    tasks.join_all().await;
}

/// The runtime's paused clock, for governor.
#[derive(Debug, Clone, Copy)]
struct Paused {
    begin: Instant,
}

impl Clock for Paused {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::from(self.begin.elapsed())
    }
}

/// Two stalls of the network are in it.
const TIME: Duration = Duration::from_secs(12);

const TASKS: usize = 200;

const FIFTY: NonZeroU32 = NonZeroU32::MIN.saturating_add(50 - 1);
