//! The ledger: the record of what the simulator saw, on which tests assert.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::shared::{Clock, lock};

/// Record of all calls that the simulator saw. Clones share one record.
///
/// Times are counted from the simulator's start and read under the ledger's lock, so arrivals are
/// in order. The sums of [`summary`](Self::summary) cover every call since the start. The list of
/// [`arrivals`](Self::arrivals) keeps only the newest [`Config::arrivals_kept`].
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

/// One data call: its time, peer, target, token and outcome.
///
/// In JSON times are seconds since the simulator's start.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Arrival {
    /// When it was counted.
    #[serde(serialize_with = "in_seconds")]
    pub at: Duration,
    /// Where it came from.
    pub peer: SocketAddr,
    /// Path and query.
    pub target: Box<str>,
    /// The generation of its token: the first token issued has 1. `None` if the call was refused
    /// before the check of its token, or if the token was not valid.
    pub token: Option<u64>,
    /// The status of the answer; none if the head was never sent.
    pub status: Option<u16>,
    /// Whether the answer's body came to its end.
    pub outcome: Outcome,
    /// When the answer ended; none while it is in progress.
    #[serde(serialize_with = "in_optional_seconds")]
    pub ended: Option<Duration>,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The head or the body is still being sent.
    InProgress,
    /// The last byte was handed to the connection.
    Complete,
    /// The client, the server or a fault ended it early.
    Aborted,
}

/// Sums since the simulator's start.
///
/// A data call is any request on the data listener, whatever its answer. Sockets are those of the
/// data listener.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Data calls that were counted.
    pub data_calls: u64,
    /// Data calls by the status of their answer.
    pub by_status: BTreeMap<u16, u64>,
    /// Data calls whose answer was sent to its last byte.
    pub complete: u64,
    /// Data calls that a fault or the client ended early.
    pub aborted: u64,
    /// Data calls not yet answered to the end.
    pub in_progress: u64,
    /// The largest number of data calls in any half-open interval of one second.
    pub largest_second: u64,
    /// POSTs to the token endpoint, refused ones included.
    pub token_posts: u64,
    /// Tokens issued.
    pub tokens_issued: u64,
    /// Sockets accepted.
    pub sockets_opened: u64,
    /// Sockets open now.
    pub sockets_open: u64,
    /// The most sockets that were open at once.
    pub peak_sockets: u64,
    /// Arrivals that are no longer in the bounded list.
    pub arrivals_forgotten: u64,
}

/// The newest arrivals, and the sums over all, without a clock.
#[derive(Debug, Default)]
struct Book {
    arrivals: VecDeque<Arrival>,
    kept: usize,
    /// The arrivals of the last second, for the largest second.
    recent: VecDeque<Duration>,
    sums: Summary,
}

/// The number of an arrival, counted from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number(u64);

// === impl Ledger ===

impl Ledger {
    /// An empty ledger that keeps the newest `kept` arrivals.
    pub(crate) fn new(clock: Arc<Clock>, kept: usize) -> Self {
        Self {
            clock,
            book: Arc::new(Mutex::new(Book {
                kept: kept.max(1),
                ..Book::default()
            })),
        }
    }

    /// Returns the sums since the start.
    #[must_use]
    pub fn summary(&self) -> Summary {
        lock(&self.book).sums.clone()
    }

    /// Returns the newest data calls, in the order of their arrival.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Arrival> {
        lock(&self.book).arrivals.iter().cloned().collect()
    }

    /// Returns the sums and the arrivals of one instant, as JSON.
    pub(crate) fn full(&self) -> Value {
        let book = lock(&self.book);
        json!({ "summary": book.sums, "arrivals": book.arrivals })
    }

    /// Notes a data call and returns when it came.
    pub(crate) fn arrive(&self, peer: SocketAddr, target: &str) -> (Number, Duration) {
        let mut book = lock(&self.book);
        let at = self.clock.now();
        (book.arrive(at, peer, target), at)
    }

    /// Notes which token a call carried.
    pub(crate) fn identify(&self, number: Number, generation: u64) {
        lock(&self.book).amend(number, |arrival| arrival.token = Some(generation));
    }

    /// Notes with which status a call is answered.
    pub(crate) fn answer(&self, number: Number, status: u16) {
        let mut book = lock(&self.book);
        *book.sums.by_status.entry(status).or_default() += 1;
        book.amend(number, |arrival| arrival.status = Some(status));
    }

    /// Notes the end of a call and returns when that was.
    pub(crate) fn end(&self, number: Number, outcome: Outcome) -> Duration {
        let mut book = lock(&self.book);
        let at = self.clock.now();
        let sums = &mut book.sums;
        sums.in_progress -= 1;
        match outcome {
            Outcome::Complete => sums.complete += 1,
            Outcome::Aborted | Outcome::InProgress => sums.aborted += 1,
        }
        book.amend(number, |arrival| {
            arrival.outcome = outcome;
            arrival.ended = Some(at);
        });
        at
    }

    /// Notes a POST to the token endpoint.
    pub(crate) fn token_post(&self) {
        lock(&self.book).sums.token_posts += 1;
    }

    /// Notes a token that was issued.
    pub(crate) fn token_issued(&self) {
        lock(&self.book).sums.tokens_issued += 1;
    }

    /// Notes an accepted socket of the data listener.
    pub(crate) fn socket_opened(&self) {
        let sums = &mut lock(&self.book).sums;
        sums.sockets_opened += 1;
        sums.sockets_open += 1;
        sums.peak_sockets = sums.peak_sockets.max(sums.sockets_open);
    }

    /// Notes that a socket was closed.
    pub(crate) fn socket_closed(&self) {
        lock(&self.book).sums.sockets_open -= 1;
    }
}

// === impl Book ===

impl Book {
    /// Records a call at `at`, which is not before the last call.
    fn arrive(&mut self, at: Duration, peer: SocketAddr, target: &str) -> Number {
        let number = Number(self.sums.data_calls);
        let sums = &mut self.sums;
        sums.data_calls += 1;
        sums.in_progress += 1;

        // The half-open second that ends with this arrival: (at - 1 s, at]. Every half-open second
        // holds no more than the one that ends with its last arrival, so the maximum is exact.
        while self
            .recent
            .front()
            .is_some_and(|first| *first + SECOND <= at)
        {
            self.recent.pop_front();
        }
        self.recent.push_back(at);
        sums.largest_second = sums.largest_second.max(self.recent.len() as u64);

        if self.arrivals.len() >= self.kept {
            self.arrivals.pop_front();
            sums.arrivals_forgotten += 1;
        }
        self.arrivals.push_back(Arrival {
            at,
            peer,
            target: target.into(),
            token: None,
            status: None,
            outcome: Outcome::InProgress,
            ended: None,
        });
        number
    }

    /// Changes an arrival, if it is still in the list.
    fn amend(&mut self, number: Number, change: impl FnOnce(&mut Arrival)) {
        let index = number.0.checked_sub(self.sums.arrivals_forgotten);
        let index = index.and_then(|index| usize::try_from(index).ok());
        if let Some(arrival) = index.and_then(|index| self.arrivals.get_mut(index)) {
            change(arrival);
        }
    }
}

fn in_seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    time.as_secs_f64().serialize(serializer)
}

fn in_optional_seconds<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// The interval of "50 requests per second" in the contract's table of limits.
const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
