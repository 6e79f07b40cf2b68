//! The ledger: what the simulator saw, the one account that tests assert on.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::Serialize;

use self::book::Book;
use crate::{clock::Clock, lock::lock};

mod arrival;
mod book;
mod summary;

pub(crate) use self::book::Number;
pub use self::{
    arrival::{Arrival, Outcome},
    summary::Summary,
};

/// What the simulator saw, kept while it runs; clones share one account.
///
/// Times are counted from the simulator's start and read under the ledger's lock, so arrivals are
/// in order. The sums of [`summary`](Self::summary) cover every call since the start. The list of
/// [`arrivals`](Self::arrivals) is bounded: past [`Config::arrivals_kept`] the oldest go.
///
/// [`Config::arrivals_kept`]: crate::Config::arrivals_kept
///
/// # Examples
/// ```
/// use http::Request;
/// use tds_sim::{Config, Sim};
/// use tower::ServiceExt as _;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let sim = Sim::new(Config::default());
/// let call = Request::get("http://data.example/v1/live/bus").body(String::new())?;
/// drop(sim.clone().oneshot(call).await?);
///
/// let ledger = sim.ledger();
/// assert_eq!(ledger.summary().by_status[&401], 1);
/// assert_eq!(&*ledger.arrivals()[0].target, "/v1/live/bus");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Ledger {
    clock: Arc<Clock>,
    book: Arc<Mutex<Book>>,
}

/// The whole ledger as it is written to JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Full {
    summary: Summary,
    arrivals: Vec<Arrival>,
}

// === impl Ledger ===

impl Ledger {
    /// An empty ledger that keeps the newest `kept` arrivals.
    pub(crate) fn new(clock: Arc<Clock>, kept: usize) -> Self {
        Self {
            clock,
            book: Arc::new(Mutex::new(Book::new(kept))),
        }
    }

    /// The sums since the start.
    #[must_use]
    pub fn summary(&self) -> Summary {
        lock(&self.book).sums.clone()
    }

    /// The newest data calls, oldest first.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Arrival> {
        lock(&self.book).arrivals.iter().cloned().collect()
    }

    /// Both at one instant.
    pub(crate) fn full(&self) -> Full {
        let book = lock(&self.book);
        Full {
            summary: book.sums.clone(),
            arrivals: book.arrivals.iter().cloned().collect(),
        }
    }

    /// Notes a data call and says when it came.
    pub(crate) fn arrive(&self, peer: SocketAddr, target: &str) -> (Number, Duration) {
        let mut book = lock(&self.book);
        let at = self.clock.now();
        (book.arrive(at, peer, target), at)
    }

    /// Notes whose token a call carried.
    pub(crate) fn identify(&self, number: Number, generation: u64) {
        lock(&self.book).amend(number, |arrival| arrival.token = Some(generation));
    }

    /// Notes with which status a call is answered.
    pub(crate) fn answer(&self, number: Number, status: u16) {
        let mut book = lock(&self.book);
        let count = book.sums.by_status.entry(status).or_default();
        *count = count.saturating_add(1);
        book.amend(number, |arrival| arrival.status = Some(status));
    }

    /// Notes the end of a call and says when that was.
    pub(crate) fn end(&self, number: Number, outcome: Outcome, answered: bool) -> Duration {
        let mut book = lock(&self.book);
        let at = self.clock.now();
        let sums = &mut book.sums;
        sums.in_progress = sums.in_progress.saturating_sub(1);
        if !answered {
            sums.unanswered = sums.unanswered.saturating_add(1);
        }
        let count = match outcome {
            Outcome::Complete => &mut sums.complete,
            Outcome::Aborted | Outcome::InProgress => &mut sums.aborted,
        };
        *count = count.saturating_add(1);
        book.amend(number, |arrival| {
            arrival.outcome = outcome;
            arrival.ended = Some(at);
        });
        at
    }

    /// Notes a POST to the token endpoint by `client`, as far as it named a known one.
    pub(crate) fn token_post(&self, client: Option<&str>) {
        let sums = &mut lock(&self.book).sums;
        sums.token_posts = sums.token_posts.saturating_add(1);
        let client = client.unwrap_or("unknown").to_owned();
        let count = sums.token_posts_by_client.entry(client).or_default();
        *count = count.saturating_add(1);
    }

    /// Notes a token that was issued.
    pub(crate) fn token_issued(&self) {
        let sums = &mut lock(&self.book).sums;
        sums.tokens_issued = sums.tokens_issued.saturating_add(1);
    }

    /// Notes an accepted socket of the data listener, idle so far.
    pub(crate) fn socket_opened(&self) {
        let sums = &mut lock(&self.book).sums;
        sums.sockets_opened = sums.sockets_opened.saturating_add(1);
        sums.sockets_open = sums.sockets_open.saturating_add(1);
        sums.sockets_idle = sums.sockets_idle.saturating_add(1);
        sums.peak_sockets = sums.peak_sockets.max(sums.sockets_open);
    }

    /// Notes that an idle socket got a request.
    pub(crate) fn socket_busy(&self) {
        let sums = &mut lock(&self.book).sums;
        sums.sockets_idle = sums.sockets_idle.saturating_sub(1);
    }

    /// Notes that a socket's last request ended.
    pub(crate) fn socket_idle(&self) {
        let sums = &mut lock(&self.book).sums;
        sums.sockets_idle = sums.sockets_idle.saturating_add(1);
    }

    /// Notes that an idle socket was closed.
    pub(crate) fn socket_closed(&self) {
        let sums = &mut lock(&self.book).sums;
        sums.sockets_open = sums.sockets_open.saturating_sub(1);
        sums.sockets_idle = sums.sockets_idle.saturating_sub(1);
    }
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "the numbers of a test are small, and an overflow should fail it"
)]
mod tests;
