//! A hundred tasks share a list of calls and work it off.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::{Request, Uri};
use http_body_util::BodyExt;
use tds_examples::causes;
use tokio::{signal::ctrl_c, task::JoinSet};
use tower::ServiceExt;
use tower_tds::Client;

use crate::progress::Progress;

/// What the callers saw.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Whole answers, by status.
    pub(crate) answered: BTreeMap<u16, u64>,
    pub(crate) bytes: u64,
    /// What failed: the path and the error, with its causes.
    pub(crate) failed: Vec<(String, String)>,
    /// Whether somebody ended it before its time.
    pub(crate) interrupted: bool,
}

/// So many tasks want a call at the same time.
pub(crate) const TASKS: usize = 100;

/// Gets every target once.
pub(crate) async fn get_all(client: &Client, targets: Vec<Uri>, progress: &Progress) -> Calls {
    let targets: Arc<[Uri]> = targets.into();
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (client, targets) = (client.clone(), Arc::clone(&targets));
        let (next, progress) = (Arc::clone(&next), progress.clone());
        tasks.spawn(async move {
            let mut calls = Calls::default();
            // Relaxed: the counter hands out places and orders nothing else.
            while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                calls.record(target, get(client.clone(), target.clone()).await);
                progress.one_more();
            }
            calls
        });
    }
    let mut all = Calls::default();
    while !tasks.is_empty() {
        tokio::select! {
            Some(calls) = tasks.join_next() => match calls {
                Ok(calls) => all.add(calls),
                Err(panicked) => all.failed.push(("a task".to_owned(), panicked.to_string())),
            },
            _ = ctrl_c(), if !all.interrupted => {
                // Nobody takes another place; what is under way comes to its end.
                next.store(targets.len(), Ordering::Relaxed);
                all.interrupted = true;
            }
            else => {}
        }
    }
    all
}

/// One call, to the end of its body.
async fn get(client: Client, target: Uri) -> Result<(u16, usize), String> {
    let mut request = Request::new(tower_tds::RequestBody::default());
    *request.uri_mut() = target;
    let response = client.oneshot(request).await.map_err(|e| causes(&e))?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await;
    let body = body.map_err(|e| causes(&e))?;
    Ok((status, body.to_bytes().len()))
}

// === impl Calls ===

impl Calls {
    fn record(&mut self, target: &Uri, outcome: Result<(u16, usize), String>) {
        match outcome {
            Ok((status, bytes)) => {
                let count = self.answered.entry(status).or_default();
                *count = count.saturating_add(1);
                let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
                self.bytes = self.bytes.saturating_add(bytes);
            }
            Err(error) => self.failed.push((target.path().to_owned(), error)),
        }
    }

    fn add(&mut self, other: Self) {
        for (status, count) in other.answered {
            let sum = self.answered.entry(status).or_default();
            *sum = sum.saturating_add(count);
        }
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.failed.extend(other.failed);
    }
}
