//! Errors of the simulator itself, and the faults that reach a caller without a socket.

use std::{error::Error as StdError, fmt};

/// An error of the simulator, or a fault that it played.
///
/// On a socket a fault is bytes that never come. Without one it is this error, from the
/// [`Sim`](crate::Sim) or from its [`Body`](crate::Body).
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tds_sim::Error> {
/// let sim = tds_sim::Sim::new(tds_sim::Config::default());
/// for _ in 0..3 {
///     sim.add_key("other")?;
/// }
/// let refused = sim.add_key("other").unwrap_err();
/// assert!(refused.is_key_limit());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kinds without a cause are errors by `into`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Reset,
    Closed,
    Garbage,
    KeyLimit(String),
    UnknownClient,
    /// Anything that has a cause of its own.
    Failed(&'static str),
}

// === impl Error ===

impl Error {
    /// The connection was reset, before the head or within the body.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        self.kind == Kind::Reset
    }

    /// The connection was closed without a complete answer.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.kind == Kind::Closed
    }

    /// Something came that is not HTTP.
    #[must_use]
    pub fn is_garbage(&self) -> bool {
        self.kind == Kind::Garbage
    }

    /// The member already holds the three keys a member may hold.
    #[must_use]
    pub fn is_key_limit(&self) -> bool {
        matches!(self.kind, Kind::KeyLimit(_))
    }

    /// No key has the given client id.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.kind == Kind::UnknownClient
    }

    /// Returns the error of a step that failed, with its cause.
    pub(crate) fn failed(
        what: &'static str,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self {
            kind: Kind::Failed(what),
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
