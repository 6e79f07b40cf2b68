//! The causes of waits.

use std::fmt;

/// The cause of a call's wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WaitCause {
    /// The readiness of the inner service, such as a token.
    Readiness,
    /// A permit of a quota, all of whose permits are live.
    Window,
    /// Room in a sliding-window counter.
    Counter,
    /// Room in a leaky bucket.
    Bucket,
    /// A place in flight: [`Limits::in_flight`](crate::Limits::in_flight).
    InFlight,
    /// The end of the silence after a refusal that concerns the address.
    Silence,
    /// The end of this credential's pause after a 429.
    Pause,
    /// A socket: [`Limits::connections`](crate::Limits::connections), or a connection of the client.
    Connection,
    /// The response head, after the request was sent.
    Response,
}

// === impl WaitCause ===

impl WaitCause {
    /// A short, stable name for labels and fields.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Readiness => "readiness",
            Self::Window => "window",
            Self::Counter => "counter",
            Self::Bucket => "bucket",
            Self::InFlight => "in_flight",
            Self::Silence => "silence",
            Self::Pause => "pause",
            Self::Connection => "connection",
            Self::Response => "response",
        }
    }
}

impl fmt::Display for WaitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Readiness => "the inner service, such as a token",
            Self::Window | Self::Counter | Self::Bucket => "the rate limit",
            Self::InFlight => "another response body to end",
            Self::Silence => "the end of the silence after a refusal",
            Self::Pause => "the end of the pause after a 429",
            Self::Connection => "a connection",
            Self::Response => "a response",
        })
    }
}
