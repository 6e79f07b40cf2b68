//! One resource for many users, with at most one call upstream at a time.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, header::CONTENT_TYPE};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tower_tds::{Client, Error, Kind};

use crate::{answer, refusal::Refusal, status::Failures};

/// A resource, and its last response.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    target: Arc<str>,
    terms: Terms,
    failures: Failures,
    state: Arc<Mutex<State>>,
}

/// The terms for users.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// How long a response is served without a call to the service.
    pub(crate) fresh: Duration,
    /// How much longer a response is served while the service fails.
    pub(crate) stale: Duration,
    /// The longest wait of a user.
    pub(crate) patience: Duration,
}

/// A whole response.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) body: Bytes,
    pub(crate) kind: Option<HeaderValue>,
    at: Instant,
}

/// The result for a user.
#[derive(Debug)]
pub(crate) enum Served {
    Fresh(Answer),
    Stale(Answer),
    Refused(Refusal),
}

/// The state behind a lock that is never held across an `.await`.
#[derive(Debug, Default)]
struct State {
    last: Option<Answer>,
    /// A failure and how long it is served. Otherwise each waiting user would cause a call.
    failed: Option<(Instant, Duration, Refusal)>,
    /// Closed when the fetch in flight has ended.
    fetch: Option<watch::Receiver<()>>,
}

// === impl Resource ===

impl Resource {
    pub(crate) fn new(target: &str, terms: Terms, failures: Failures) -> Self {
        Self {
            target: target.into(),
            terms,
            failures,
            state: Arc::default(),
        }
    }

    /// Serves one user. Dropping the future does not end the fetch.
    pub(crate) async fn get(&self, client: &Client) -> Served {
        let fetch = {
            let mut state = self.lock();
            if state.settled(self.terms) {
                return state.serve(self.terms);
            }
            // A fetch that has ended and is still here was aborted.
            let fetch = state.fetch.clone();
            let fetch = fetch.filter(|fetch| fetch.has_changed().is_ok());
            fetch.unwrap_or_else(|| self.fetch(client, &mut state))
        };
        let mut fetch = fetch;
        // No value is sent: the channel closes when the fetch ends.
        let ended = timeout(self.terms.patience, fetch.changed()).await;
        let state = self.lock();
        match ended {
            Ok(_) => state.serve(self.terms),
            Err(_) => state.stale(self.terms).unwrap_or(Served::Refused(LATE)),
        }
    }

    /// Spawns the fetch as a task, so that a user who leaves does not cancel it.
    fn fetch(&self, client: &Client, state: &mut State) -> watch::Receiver<()> {
        let (running, fetch) = watch::channel(());
        state.fetch = Some(fetch.clone());
        let (resource, client) = (self.clone(), client.clone());
        tokio::spawn(async move {
            let answer = resource.answer(&client).await;
            let mut state = resource.lock();
            state.fetch = None;
            match answer {
                Ok(answer) => {
                    state.failed = None;
                    state.last = Some(answer);
                }
                Err(error) => {
                    resource.failures.note(&error);
                    // The response was too large, and the next one will be as well.
                    let for_long = error.kind() == Kind::InvalidRequest;
                    let long = if for_long { TOO_LARGE } else { FAILED };
                    let refusal = Refusal::of(&error).listed();
                    state.failed = Some((Instant::now(), long, refusal));
                }
            }
            drop(state);
            drop(running);
        });
        fetch
    }

    async fn answer(&self, client: &Client) -> Result<Answer, Error> {
        // Longer than the wait of a user: a late response serves the next one.
        let deadline = self.terms.patience * 5;
        let call = answer::plain(client.get(&self.target));
        let response = call.deadline(deadline).await?;
        let kind = response.headers().get(CONTENT_TYPE).cloned();
        Ok(Answer {
            body: answer::whole(response, &self.target).await?,
            kind,
            at: Instant::now(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    /// Whether no call to the service is necessary now.
    fn settled(&self, terms: Terms) -> bool {
        let fresh = self
            .last
            .as_ref()
            .is_some_and(|last| last.age() < terms.fresh);
        let failed = self.failed.as_ref();
        fresh || failed.is_some_and(|(at, long, _)| at.elapsed() < *long)
    }

    fn serve(&self, terms: Terms) -> Served {
        match &self.failed {
            Some((_, _, refusal)) => self
                .stale(terms)
                .unwrap_or_else(|| Served::Refused(refusal.clone())),
            None => match &self.last {
                Some(last) => Served::Fresh(last.clone()),
                None => Served::Refused(LATE),
            },
        }
    }

    fn stale(&self, terms: Terms) -> Option<Served> {
        let last = self.last.as_ref()?;
        let bearable = last.age() < terms.fresh + terms.stale;
        bearable.then(|| Served::Stale(last.clone()))
    }
}

// === impl Answer ===

impl Answer {
    pub(crate) fn age(&self) -> Duration {
        self.at.elapsed()
    }
}

/// How long a failure is served to all users.
const FAILED: Duration = Duration::from_secs(1);

/// Each attempt downloads 64 MiB.
const TOO_LARGE: Duration = Duration::from_secs(60);

const LATE: Refusal = Refusal::new(http::StatusCode::GATEWAY_TIMEOUT, "timeout");
