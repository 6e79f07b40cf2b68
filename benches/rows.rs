//! The rows of a group of figures: each for one thread, and for two.

use std::{fmt, hint::black_box, thread, time::Duration};

use criterion::{BenchmarkGroup, measurement::WallTime};
use tokio::time::Instant;
use tower_service::Service;

use crate::call;

/// A group, and what makes the requests of its rows.
pub struct Rows<'a, M> {
    group: BenchmarkGroup<'a, WallTime>,
    make: M,
}

// === impl Rows ===

impl<'a, M> Rows<'a, M> {
    /// No rows yet.
    #[must_use]
    pub const fn new(group: BenchmarkGroup<'a, WallTime>, make: M) -> Self {
        Self { group, make }
    }

    /// Measures a service: one thread, and then two at once, each with a clone of it.
    ///
    /// # Panics
    /// If the service has to wait, or fails.
    #[expect(
        clippy::expect_used,
        reason = "a bench that panics must not go on with one thread"
    )]
    pub fn row<S, R>(&mut self, name: &str, service: S)
    where
        S: Service<R> + Clone + Send,
        M: Fn() -> R + Sync,
    {
        let make = &self.make;
        let mut one = service.clone();
        self.group
            .bench_function(name, |b| b.iter(|| call(&mut one, black_box(make()))));
        self.group
            .bench_function(format!("{name}, 2 threads"), |b| {
                b.iter_custom(|count| {
                    let times = thread::scope(|scope| {
                        let threads = [(); 2].map(|()| {
                            let service = service.clone();
                            scope.spawn(|| time(service, make, count))
                        });
                        threads.map(|thread| thread.join().expect("no bench panics"))
                    });
                    times.into_iter().max().unwrap_or_default()
                });
            });
    }
}

impl<M> fmt::Debug for Rows<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").finish_non_exhaustive()
    }
}

fn time<S, M, R>(mut service: S, make: &M, count: u64) -> Duration
where
    S: Service<R>,
    M: Fn() -> R,
{
    let start = Instant::now();
    for _ in 0..count {
        black_box(call(&mut service, black_box(make())));
    }
    start.elapsed()
}
