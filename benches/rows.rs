//! Rows of figures, each measured on one thread and on two.

use std::{fmt, hint::black_box, thread};

use criterion::{BenchmarkGroup, measurement::WallTime};
use tokio::time::Instant;
use tower_service::Service;

use crate::call;

/// A group of rows, and the function that makes their requests.
pub struct Rows<'a, M> {
    group: BenchmarkGroup<'a, WallTime>,
    make: M,
}

// === impl Rows ===

impl<'a, M> Rows<'a, M> {
    /// Creates a group without rows.
    #[must_use]
    pub const fn new(group: BenchmarkGroup<'a, WallTime>, make: M) -> Self {
        Self { group, make }
    }

    /// Measures a service on one thread. Then measures it on two threads at once, each with a
    /// clone, until both have ended.
    pub fn row<S, R>(&mut self, name: &str, service: S)
    where
        S: Service<R> + Clone + Send,
        M: Fn() -> R + Sync,
    {
        let make = &self.make;
        let mut one = service.clone();
        self.group
            .bench_function(name, |b| b.iter(|| call(&mut one, black_box(make()))));
        let repeat = |mut service: S, count| {
            for _ in 0..count {
                black_box(call(&mut service, black_box(make())));
            }
        };
        self.group
            .bench_function(format!("{name}, 2 threads"), |b| {
                b.iter_custom(|count| {
                    let start = Instant::now();
                    thread::scope(|scope| {
                        for service in [service.clone(), service.clone()] {
                            scope.spawn(|| repeat(service, count));
                        }
                    });
                    start.elapsed()
                });
            });
    }
}

impl<M> fmt::Debug for Rows<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").finish_non_exhaustive()
    }
}
