//! Callers without a pause, and the results of their calls.

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{sync::watch, task::JoinSet, time};

/// Calls in one task for each caller, until this is dropped.
pub(crate) struct Load<E> {
    seen: Arc<Seen<E>>,
    _callers: JoinSet<()>,
}

struct Seen<E> {
    served: watch::Sender<usize>,
    failed: watch::Sender<usize>,
    failures: Mutex<Vec<E>>,
}

// === impl Load ===

impl<E: Send + 'static> Load<E> {
    pub(crate) fn start<F>(call: impl Fn() -> F + Clone + Send + 'static) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        let seen = Arc::new(Seen {
            served: watch::Sender::default(),
            failed: watch::Sender::default(),
            failures: Mutex::default(),
        });
        let callers = (0..CALLERS).map(|_| run(call.clone(), Arc::clone(&seen)));
        Self {
            _callers: callers.collect(),
            seen,
        }
    }

    /// Waits until so many more calls are served.
    pub(crate) async fn served(&self, more: usize) {
        grown(&self.seen.served, more).await;
    }

    /// Waits until so many more calls have failed.
    pub(crate) async fn failed(&self, more: usize) {
        grown(&self.seen.failed, more).await;
    }

    /// The failures since the last call of this function.
    pub(crate) fn failures(&self) -> Vec<E> {
        std::mem::take(&mut self.seen.failures.lock().unwrap())
    }
}

async fn run<F, E>(call: impl Fn() -> F, seen: Arc<Seen<E>>)
where
    F: Future<Output = Result<(), E>>,
{
    loop {
        match call().await {
            Ok(()) => seen.served.send_modify(|count| *count += 1),
            Err(error) => {
                seen.failures.lock().unwrap().push(error);
                seen.failed.send_modify(|count| *count += 1);
            }
        }
        // Gives the server its turn on the processors.
        time::sleep(Duration::from_millis(1)).await;
    }
}

async fn grown(count: &watch::Sender<usize>, more: usize) {
    let goal = *count.borrow() + more;
    let mut count = count.subscribe();
    let grown = time::timeout(PATIENCE, count.wait_for(|count| *count >= goal)).await;
    drop(grown.expect("calls go on").expect("the sender lives"));
}

pub(crate) const CALLERS: usize = 20;
/// For calls that take milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);
