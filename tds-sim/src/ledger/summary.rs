//! The sums over everything the simulator saw.

use std::collections::BTreeMap;

use serde::Serialize;

/// Sums since the simulator's start.
///
/// A data call is any request on the data listener, whatever its answer. Sockets are those of the
/// data listener, and the connections of [`Sim::connect`](crate::Sim::connect).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Data calls that were counted.
    pub data_calls: u64,
    /// Data calls by the status of their answer.
    pub by_status: BTreeMap<u16, u64>,
    /// Data calls that ended without a head.
    pub unanswered: u64,
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
    /// The same by the client id they named; `unknown` for none or one that no key has.
    pub token_posts_by_client: BTreeMap<String, u64>,
    /// Tokens issued.
    pub tokens_issued: u64,
    /// Sockets accepted.
    pub sockets_opened: u64,
    /// Sockets open now.
    pub sockets_open: u64,
    /// Sockets open now without a request in progress.
    pub sockets_idle: u64,
    /// The most sockets that were open at once.
    pub peak_sockets: u64,
    /// Arrivals no longer in the list, which is bounded.
    pub arrivals_forgotten: u64,
}
