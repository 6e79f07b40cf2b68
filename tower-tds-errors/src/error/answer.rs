//! What the service said: its answer, as far as an error keeps it.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use super::Error;

// === impl Error ===

impl Error {
    /// The status, if the service answered.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        self.facts().status
    }

    /// The service's own words: at most 200 characters, control characters escaped, and whatever
    /// looks like a token taken out.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.facts().message.as_deref()
    }

    /// What was read of the answer's body: its coding undone, and at most 16 KiB of it. A coding
    /// that is not known here (gzip, br and deflate are) stays, and the error's line names it.
    ///
    /// It may hold what the service echoed of the request. So it is in no text of this error.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.facts().body.bytes
    }

    /// Whether the body had more than was read: it broke off, or met a bound.
    #[must_use]
    pub fn is_body_cut(&self) -> bool {
        self.facts().body.cut
    }

    /// Where a redirect leads, without user, password and query.
    #[must_use]
    pub fn location(&self) -> Option<&str> {
        self.facts().location.as_deref()
    }

    /// Whether a redirect leads to another host than the request went to, as to a login page.
    #[must_use]
    pub fn leaves_host(&self) -> bool {
        let host = |uri: &str| {
            let (_, rest) = uri.split_once("://")?;
            let host = rest.split('/').next()?;
            Some(host.to_ascii_lowercase())
        };
        let target = self.location().and_then(host);
        // A target without a host stays on this one.
        target.is_some() && target != self.uri().and_then(host)
    }

    /// The least wait before another attempt, counted from when the error came: what the service
    /// asks for, and never less than a second after [`Kind::RateExceeded`](crate::Kind::RateExceeded).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.facts().retry_after
    }

    /// When that wait ends, on this machine's wall clock.
    #[must_use]
    pub fn retry_at(&self) -> Option<SystemTime> {
        self.facts().retry_at
    }

    /// The id to quote to the service's owner.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.facts().request_id.as_deref()
    }

    /// How long the window is whose calls are used up, where the answer names it: a day has 24
    /// hours, and a month the 28 days that it has at least. When it opens again says
    /// [`retry_at`](Self::retry_at).
    #[must_use]
    pub fn window(&self) -> Option<Duration> {
        self.facts().window
    }

    /// The headers by which the service tells of its limits, as they came: `Retry-After`, and those
    /// whose names begin with `RateLimit` or `X-RateLimit`. None is no map.
    #[must_use]
    pub fn limits(&self) -> Option<&HeaderMap> {
        self.facts().limits.as_deref()
    }

    /// The length of the whole resource, where a range outside of it was asked for.
    #[must_use]
    pub fn whole_length(&self) -> Option<u64> {
        self.facts().whole_length
    }
}
