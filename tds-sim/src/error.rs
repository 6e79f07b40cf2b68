//! Errors of the simulator itself, and the faults that reach a caller without a socket.

use std::{borrow::Cow, error::Error as StdError, fmt};

/// Error of the simulator itself, or one of the faults that it plays.
///
/// On a socket, your client sees a fault as a reset, a close, missing bytes, or bytes that are not
/// HTTP. Without a socket you get this error instead, from the [`Sim`](crate::Sim) or from its
/// [`Body`](crate::Body).
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tds_sim::Error> {
/// let sim = tds_sim::Sim::new(tds_sim::Config::default());
/// for _ in 0..3 {
///     sim.add_key("other")?;
/// }
/// let refused = sim.add_key("other").unwrap_err();
/// assert_eq!(refused.to_string(), "member other already holds 3 keys");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Error {
    pub(crate) kind: Kind,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// Each kind converts into an error without a cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Reset,
    Closed,
    Garbage,
    KeyLimit(String),
    UnknownClient,
    /// A step failed. The error has the cause as its source.
    Failed(Cow<'static, str>),
}

// === impl Error ===

impl Error {
    /// Whether the connection was reset, before the head or within the body.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        self.kind == Kind::Reset
    }

    /// Returns the error of the step `what`, which failed because of `source`.
    pub(crate) fn failed(
        what: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self {
            kind: Kind::Failed(what.into()),
            source: Some(source.into()),
        }
    }
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Self { kind, source: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Reset => f.write_str("connection reset by a fault of the simulator"),
            Kind::Closed => f.write_str("connection closed by a fault of the simulator"),
            Kind::Garbage => f.write_str("a fault of the simulator sent bytes that are not HTTP"),
            Kind::KeyLimit(member) => write!(f, "member {member} already holds 3 keys"),
            Kind::UnknownClient => f.write_str("no key has this client id; add one, or correct it"),
            Kind::Failed(what) => f.write_str(what),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
