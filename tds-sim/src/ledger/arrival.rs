//! One data call as the simulator saw it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

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
    #[serde(serialize_with = "as_text")]
    pub target: Arc<str>,
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

/// What became of the answer's body.
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

// === impl Arrival ===

impl Arrival {
    pub(super) fn new(at: Duration, peer: SocketAddr, target: Arc<str>) -> Self {
        Self {
            at,
            peer,
            target,
            token: None,
            status: None,
            outcome: Outcome::InProgress,
            ended: None,
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

fn as_text<S: Serializer>(target: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(target)
}
