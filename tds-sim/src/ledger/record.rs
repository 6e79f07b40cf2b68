//! Records of the ledger: one for each data call, and sums over all.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use serde::{Serialize, Serializer};

/// One data call: when it was counted, from where, for what, and what became of it.
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
    /// The generation of its token: the first token issued has 1. None if the call was refused
    /// before its token was looked at, or the token was not valid.
    pub token: Option<u64>,
    /// The status of the answer; none if the head was never sent.
    pub status: Option<u16>,
    /// Whether the answer's body came to its end.
    pub outcome: Outcome,
    /// When the answer ended; none while it is in progress.
    #[serde(serialize_with = "in_optional_seconds")]
    pub ended: Option<Duration>,
}

/// Fate of the answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The head or the body is still being sent.
    InProgress,
    /// The last byte was handed to the connection.
    Complete,
    /// Either side gave up before the end, a fault included.
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
    /// Data calls whose answer broke off, by a fault or because the client left.
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
    /// Arrivals no longer in the list, which is bounded.
    pub arrivals_forgotten: u64,
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
