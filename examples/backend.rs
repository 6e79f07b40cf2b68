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
use tds_examples::{Service, end, no_argument, say, tally};
use tokio::{sync::Mutex, task::JoinSet, time::Instant, time::timeout};
use tower::{BoxError, ServiceExt};
use tower_tds::{Client, RequestBody, layers::errors::RetryLayer};

/// A resource that is at most so old. Whoever finds it stale fetches it; the others wait for that.
#[derive(Clone)]
struct Cached {
    client: Client,
    url: Uri,
    last: Arc<Mutex<Option<Last>>>,
}

/// What came of the last fetch, and when.
struct Last {
    at: Instant,
    outcome: Outcome,
}

type Outcome = Result<Bytes, String>;

const FRESH: Duration = Duration::from_secs(10);
/// A failure serves too, or those who wait would each make a call of their own.
const FAILED: Duration = Duration::from_secs(1);

impl Cached {
    /// Whoever gives up leaves the queue, and does not take the call along: it is a task of its own.
    async fn get(self) -> Outcome {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some(last) = &*last
            && last.at.elapsed() < if last.outcome.is_ok() { FRESH } else { FAILED }
        {
            return last.outcome.clone();
        }
        let call = tokio::spawn(async move {
            let outcome = self.fetch().await.map_err(|error| error.to_string());
            *last = Some(Last {
                at: Instant::now(),
                outcome: outcome.clone(),
            });
            outcome
        });
        call.await.map_err(|error| error.to_string())?
    }

    async fn fetch(&self) -> Result<Bytes, BoxError> {
        let request = Request::get(self.url.clone()).body(RequestBody::default())?;
        let response = self.client.clone().oneshot(request).await?;
        Ok(response.into_body().collect().await?.to_bytes())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    end(run().await)
}

async fn run() -> Result<(), BoxError> {
    no_argument("backend, without arguments")?;
    let service = Service::find().await?;
    // A user who waits is better told than kept: one attempt.
    let once = RetryLayer::new().attempts(NonZeroU32::MIN);
    let client = service.client()?.retry(once).build()?;
    let (url, last) = (service.url("/v1/live/bus")?, Arc::default());
    let cached = Cached { client, url, last };

    let mut users = JoinSet::new();
    for _ in 0..200 {
        // A user's patience is over everything: the lock, the token, the permit, the answer.
        let answer = timeout(Duration::from_secs(2), cached.clone().get());
        users.spawn(async move { Ok(answer.await??) });
    }
    let (served, outcome) = tally(users.join_all().await);
    say(&format!("{served} of 200 users served\n"))?;
    if let Some(ledger) = service.ledger() {
        let upstream = ledger.summary().data_calls;
        say(&format!("calls upstream: {upstream}\n"))?;
    }
    outcome
}
