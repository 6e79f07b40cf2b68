//! Ledger: the record of what the simulator saw, on which your tests assert.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, Method, request::Parts};
use serde::{Serialize, Serializer};
use tokio::sync::Notify;

use crate::{
    clock::{Clock, lock},
    text::Pattern,
};

/// Record of all calls that the simulator saw. Clones share one record.
///
/// Times are counted from the simulator's start and read under the ledger's lock, so arrivals are
/// in order. You get the totals of all calls since the start or the last [reset](crate::Sim::reset)
/// from [`summary`](Self::summary); the list of [`arrivals`](Self::arrivals) keeps only the newest
/// [`Config::arrivals_kept`].
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
    /// Notified of each change.
    pub(crate) changed: Arc<Notify>,
    /// Whether headers are recorded.
    pub(crate) has_headers: bool,
}

/// One data call: its request, peer, token, times and outcome.
///
/// In JSON times are seconds since the simulator's start.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Arrival {
    /// When the call was counted.
    #[serde(serialize_with = "in_seconds")]
    pub at: Duration,
    /// Address that the call came from.
    pub peer: SocketAddr,
    /// Number of the call's connection, counted from one since the start. `None` without a socket.
    pub connection: Option<u64>,
    /// Method of the request.
    #[serde(serialize_with = "as_text")]
    pub method: Method,
    /// Path and query of the request.
    pub target: Box<str>,
    /// Headers by their names, if [`Config::record_headers`] is set. Secrets are `***`. If a name
    /// is repeated, its values are separated by a comma.
    ///
    /// [`Config::record_headers`]: crate::Config::record_headers
    pub headers: BTreeMap<Box<str>, Box<str>>,
    /// Length of the request's body. If [`Config::record_headers`] is set, it is the length that
    /// was received, otherwise the `Content-Length`, if there is one.
    ///
    /// [`Config::record_headers`]: crate::Config::record_headers
    pub body_bytes: Option<u64>,
    /// Generation of the call's token; the first token issued has 1. `None` if the call was refused
    /// before its token was checked, or if the token was not valid.
    pub token: Option<u64>,
    /// Status of the answer. `None` if the head was never sent.
    pub status: Option<u16>,
    /// Whether the answer's body came to its end.
    pub outcome: Outcome,
    /// When the head of the answer was ready. `None` before that.
    #[serde(serialize_with = "in_optional_seconds")]
    pub answered: Option<Duration>,
    /// When the answer ended. `None` while it is in progress.
    #[serde(serialize_with = "in_optional_seconds")]
    pub ended: Option<Duration>,
}

/// Outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// Head or body is still being sent.
    InProgress,
    /// All of it was handed to the connection.
    Complete,
    /// The client, the server or a fault ended it early.
    Aborted,
}

/// Totals since the simulator's start or the last reset of the ledger.
///
/// Data calls are all requests on the data listener, whatever their answer. Sockets are those of
/// the data listener.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Number of data calls.
    pub data_calls: u64,
    /// Data calls by the status of their answer.
    pub by_status: BTreeMap<u16, u64>,
    /// Data calls whose answer was sent to its last byte.
    pub complete: u64,
    /// Data calls that a fault or the client ended early.
    pub aborted: u64,
    /// Data calls not yet answered to the end.
    pub in_progress: u64,
    /// Largest number of data calls in any half-open interval of one second.
    pub largest_second: u64,
    /// POSTs to the token endpoint, refused ones included.
    pub token_posts: u64,
    /// Tokens that were issued.
    pub tokens_issued: u64,
    /// Sockets that were accepted.
    pub sockets_opened: u64,
    /// Sockets that are open now.
    pub sockets_open: u64,
    /// Most sockets that were open at once.
    pub peak_sockets: u64,
    /// Arrivals that are no longer in the bounded list.
    pub arrivals_forgotten: u64,
}

/// Newest arrivals, and the totals of all, without a clock.
#[derive(Debug, Default)]
struct Book {
    arrivals: VecDeque<Arrival>,
    kept: usize,
    /// Number of the next arrival, and of the first one that the totals include.
    next: u64,
    since: u64,
    /// Arrivals of the last second, for the largest second.
    recent: VecDeque<Duration>,
    sums: Summary,
    /// Sockets since the start.
    sockets: u64,
}

/// Which arrivals to list, all by default.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) path: Option<Pattern>,
    pub(crate) status: Vec<u16>,
    /// Only arrivals counted at this time or later.
    pub(crate) from: Option<Duration>,
    /// Only arrivals counted before this time.
    pub(crate) to: Option<Duration>,
}

/// Number of an arrival, counted from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number(u64);

// === impl Ledger ===

impl Ledger {
    /// Returns an empty ledger that keeps the newest `kept` arrivals.
    pub(crate) fn new(clock: Arc<Clock>, kept: usize, has_headers: bool) -> Self {
        Self {
            clock,
            changed: Arc::default(),
            has_headers,
            book: Arc::new(Mutex::new(Book {
                kept,
                ..Book::default()
            })),
        }
    }

    /// Returns the totals since the start or the last reset.
    #[must_use]
    pub fn summary(&self) -> Summary {
        lock(&self.book).sums.clone()
    }

    /// Returns the newest data calls, in the order of their arrival.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Arrival> {
        lock(&self.book).arrivals.iter().cloned().collect()
    }

    /// Returns the totals, and up to `most` of the newest arrivals that match, all read at one
    /// instant.
    pub(crate) fn find(&self, filter: &Filter, most: usize) -> (Summary, Vec<Arrival>) {
        let book = lock(&self.book);
        let newest = book.arrivals.iter().rev();
        let found = newest.filter(|arrival| filter.matches(arrival)).take(most);
        let mut found: Vec<_> = found.cloned().collect();
        found.reverse();
        (book.sums.clone(), found)
    }

    /// Waits until this many arrivals match.
    pub(crate) async fn wait(&self, filter: &Filter, calls: usize) {
        loop {
            let changed = self.changed.notified();
            if self.has(filter, calls) {
                return;
            }
            changed.await;
            tokio::time::sleep(TICK).await;
        }
    }

    /// Whether this many arrivals match.
    fn has(&self, filter: &Filter, calls: usize) -> bool {
        let book = lock(&self.book);
        let found = book.arrivals.iter().filter(|call| filter.matches(call));
        found.take(calls).count() == calls
    }

    /// Forgets all calls and totals. Open sockets are still counted, calls in progress are not.
    pub(crate) fn clear(&self) {
        let book = &mut *lock(&self.book);
        book.arrivals.clear();
        book.recent.clear();
        book.since = book.next;
        let sockets_open = book.sums.sockets_open;
        book.sums = Summary {
            sockets_open,
            peak_sockets: sockets_open,
            ..Summary::default()
        };
        self.changed.notify_waiters();
    }

    /// Notes a data call from `peer`, on the connection of this number, and returns when it came.
    pub(crate) fn arrive(
        &self,
        peer: SocketAddr,
        connection: Option<u64>,
        head: &Parts,
    ) -> (Number, Duration) {
        let headers = self.has_headers.then(|| masked(&head.headers));
        let target = head.uri.path_and_query();
        let mut book = lock(&self.book);
        let at = self.clock.now();
        let number = book.arrive(Arrival {
            at,
            peer,
            connection,
            method: head.method.clone(),
            target: target.map_or("/", |target| target.as_str()).into(),
            headers: headers.unwrap_or_default(),
            body_bytes: None,
            token: None,
            status: None,
            outcome: Outcome::InProgress,
            answered: None,
            ended: None,
        });
        self.changed.notify_waiters();
        (number, at)
    }

    /// Changes an arrival, if it is still in the list.
    pub(crate) fn amend(&self, number: Number, change: impl FnOnce(&mut Arrival)) {
        lock(&self.book).amend(number, change);
    }

    /// Notes with which status a call is answered.
    pub(crate) fn answer(&self, number: Number, status: u16) {
        let mut book = lock(&self.book);
        let at = self.clock.now();
        if number.0 >= book.since {
            *book.sums.by_status.entry(status).or_default() += 1;
        }
        book.amend(number, |arrival| {
            arrival.status = Some(status);
            arrival.answered = Some(at);
        });
        self.changed.notify_waiters();
    }

    /// Notes the end of a call and returns when that was.
    pub(crate) fn end(&self, number: Number, outcome: Outcome) -> Duration {
        let mut book = lock(&self.book);
        let at = self.clock.now();
        if number.0 < book.since {
            return at;
        }
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
        self.changed.notify_waiters();
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

    /// Notes an accepted socket of the data listener, and returns its number.
    pub(crate) fn socket_opened(&self) -> u64 {
        let book = &mut *lock(&self.book);
        let sums = &mut book.sums;
        sums.sockets_opened += 1;
        sums.sockets_open += 1;
        sums.peak_sockets = sums.peak_sockets.max(sums.sockets_open);
        book.sockets += 1;
        book.sockets
    }

    /// Notes that a socket was closed.
    pub(crate) fn socket_closed(&self) {
        lock(&self.book).sums.sockets_open -= 1;
    }
}

// === impl Book ===

impl Book {
    /// Records a call, which is not before the last call.
    fn arrive(&mut self, arrival: Arrival) -> Number {
        let at = arrival.at;
        let number = Number(self.next);
        self.next += 1;
        let sums = &mut self.sums;
        sums.data_calls += 1;
        sums.in_progress += 1;

        // Half-open second that ends with this arrival: (at - 1 s, at]. Every half-open second
        // holds no more than the one that ends with its last arrival, so the maximum is exact.
        let is_old = |first: &Duration| *first + SECOND <= at;
        while self.recent.front().is_some_and(is_old) {
            self.recent.pop_front();
        }
        self.recent.push_back(at);
        sums.largest_second = sums.largest_second.max(self.recent.len() as u64);

        self.arrivals.push_back(arrival);
        if self.arrivals.len() > self.kept {
            self.arrivals.pop_front();
            sums.arrivals_forgotten += 1;
        }
        number
    }

    /// Changes an arrival, if it is still in the list.
    fn amend(&mut self, number: Number, change: impl FnOnce(&mut Arrival)) {
        let first = self.since + self.sums.arrivals_forgotten;
        let index = number.0.checked_sub(first);
        let index = index.and_then(|index| usize::try_from(index).ok());
        if let Some(arrival) = index.and_then(|index| self.arrivals.get_mut(index)) {
            change(arrival);
        }
    }
}

// === impl Filter ===

impl Filter {
    fn matches(&self, arrival: &Arrival) -> bool {
        let path = arrival.target.split('?').next().unwrap_or_default();
        let status = arrival.status.as_ref();
        self.path.as_ref().is_none_or(|wanted| wanted.matches(path))
            && (self.status.is_empty() || status.is_some_and(|is| self.status.contains(is)))
            && self.from.is_none_or(|from| arrival.at >= from)
            && self.to.is_none_or(|to| arrival.at < to)
    }
}

/// Returns the headers with their secrets masked. Credentials keep their scheme.
fn masked(headers: &HeaderMap) -> BTreeMap<Box<str>, Box<str>> {
    let shown = |name: &HeaderName, value: &HeaderValue| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        if !SECRETS.split(' ').any(|part| name.as_str().contains(part)) {
            return value;
        }
        match value.split_once(' ') {
            Some((scheme @ ("Bearer" | "bearer" | "Basic" | "basic"), _)) => {
                format!("{scheme} ***")
            }
            _ => "***".to_owned(),
        }
    };
    let of = |name: &HeaderName| {
        let values = headers.get_all(name).iter().map(|value| shown(name, value));
        values.collect::<Vec<_>>().join(", ").into()
    };
    let names = headers.keys();
    names.map(|name| (name.as_str().into(), of(name))).collect()
}

fn as_text<S: Serializer>(method: &Method, serializer: S) -> Result<S::Ok, S::Error> {
    method.as_str().serialize(serializer)
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

/// Parts of the names of headers whose values are secrets.
const SECRETS: &str = "authorization cookie token secret password credential api-key apikey";

/// How long a wait pauses after a change, so that it does not take the lock all the time.
const TICK: Duration = Duration::from_millis(5);

/// Interval of "50 requests per second" in the contract's table of limits.
const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
