//! The rows of a group of figures: each for one thread, and for two.

use std::{fmt, hint::black_box, thread};

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

    /// Measures a service: one thread, and then two at once, each with a clone of it, from the
    /// beginning of the first to the end of the last.
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
