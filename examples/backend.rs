//! For the backend of an app: many users, one call upstream for what they all ask for, and an
//! answer soon or not at all.
//!
//! ```text
//! cargo run --bin backend
//! ```

use std::{num::NonZeroU32, process::ExitCode, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::BodyExt;
use tds_examples::{Service, end, say, tally};
use tokio::{sync::Mutex, task::JoinSet, time::Instant, time::timeout};
use tower::{BoxError, ServiceExt};
use tower_tds::{Client, RequestBody, layers::errors::RetryLayer};

/// A resource that is at most so old. Whoever finds it stale fetches it; the others wait for that.
struct Cached {
    client: Client,
    url: Uri,
    last: Mutex<Option<(Instant, Bytes)>>,
}

const FRESH: Duration = Duration::from_secs(10);

impl Cached {
    async fn get(&self) -> Result<Bytes, BoxError> {
        let mut last = self.last.lock().await;
        if let Some((at, data)) = &*last
            && at.elapsed() < FRESH
        {
            return Ok(data.clone());
        }
        let request = Request::get(self.url.clone()).body(RequestBody::default())?;
        let response = self.client.clone().oneshot(request).await?;
        let data = response.into_body().collect().await?.to_bytes();
        *last = Some((Instant::now(), data.clone()));
        Ok(data)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    end(run().await)
}

async fn run() -> Result<(), BoxError> {
    let service = Service::find().await?;
    // A user who waits is better told than kept: one attempt.
    let once = RetryLayer::new().attempts(NonZeroU32::MIN);
    let client = service.client()?.retry(once).build()?;
    let (url, last) = (service.url("/v1/live/bus")?, Mutex::default());
    let cached = Arc::new(Cached { client, url, last });

    let mut users = JoinSet::new();
    for _ in 0..200 {
        let cached = Arc::clone(&cached);
        // A user's patience is over everything: the lock, the token, the permit, the answer. Whoever
        // gives up does not take the call along, which is a task of its own.
        let call = tokio::spawn(async move { cached.get().await });
        users.spawn(async move { timeout(Duration::from_secs(2), call).await?? });
    }
    let (served, outcome) = tally(users.join_all().await);
    say(&format!("{served} of 200 users served\n"))?;
    if let Some(ledger) = service.ledger() {
        let upstream = ledger.summary().data_calls;
        say(&format!("calls upstream: {upstream}\n"))?;
    }
    outcome
}
