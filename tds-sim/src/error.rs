//! Errors of the simulator itself, and the faults that reach a caller without a socket.

use std::{error::Error as StdError, fmt, io};

/// Why the simulator could not do what it was asked to, or which fault it played.
///
/// On a socket a fault is bytes that never come. Without one it is this error, from the
/// [`Sim`](crate::Sim) or from its [`Body`](crate::Body).
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tds_sim::Error> {
/// let sim = tds_sim::Sim::new(tds_sim::Config::default());
/// sim.add_member("other");
/// for _ in 0..3 {
///     sim.add_key("other")?;
/// }
/// let refused = sim.add_key("other").unwrap_err();
/// assert!(refused.is_key_limit());
/// # Ok(())
/// # }
/// ```
pub struct Error {
    kind: Kind,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Reset,
    Closed,
    Garbage,
    KeyLimit(String),
    UnknownMember(String),
    UnknownClient,
    Start(&'static str),
    Signing,
    Body,
    Request,
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

    /// No key has the given client id, or no member the given name.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self.kind, Kind::UnknownClient | Kind::UnknownMember(_))
    }

    pub(crate) fn reset() -> Self {
        Kind::Reset.into()
    }

    pub(crate) fn closed() -> Self {
        Kind::Closed.into()
    }

    pub(crate) fn garbage() -> Self {
        Kind::Garbage.into()
    }

    pub(crate) fn key_limit(member: &str) -> Self {
        Kind::KeyLimit(member.to_owned()).into()
    }

    pub(crate) fn unknown_member(member: &str) -> Self {
        Kind::UnknownMember(member.to_owned()).into()
    }

    pub(crate) fn unknown_client() -> Self {
        Kind::UnknownClient.into()
    }

    pub(crate) fn signing(source: impl StdError + Send + Sync + 'static) -> Self {
        Self {
            kind: Kind::Signing,
            source: Some(Box::new(source)),
        }
    }

    pub(crate) fn start(
        what: &'static str,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self {
            kind: Kind::Start(what),
            source: Some(source.into()),
        }
    }

    pub(crate) fn body(source: io::Error) -> Self {
        Self {
            kind: Kind::Body,
            source: Some(Box::new(source)),
        }
    }

    pub(crate) fn request(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            kind: Kind::Request,
            source: Some(source.into()),
        }
    }
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Self { kind, source: None }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.kind)
            .field("source", &self.source)
            .finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Reset => f.write_str("connection reset by a fault of the simulator"),
            Kind::Closed => f.write_str("connection closed by a fault of the simulator"),
            Kind::Garbage => f.write_str("a fault of the simulator sent bytes that are not HTTP"),
            Kind::KeyLimit(member) => {
                write!(f, "member {member} already holds 3 keys; delete one first")
            }
            Kind::UnknownMember(member) => {
                write!(f, "no member {member}; add the member before its keys")
            }
            Kind::UnknownClient => f.write_str("no key has this client id; add one, or correct it"),
            Kind::Start(what) => write!(f, "cannot start: {what}"),
            Kind::Signing => f.write_str("cannot make or use a signing key"),
            Kind::Body => f.write_str("cannot encode a body"),
            Kind::Request => f.write_str("the body of a token request did not arrive"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| {
            let source: &(dyn StdError + 'static) = source;
            source
        })
    }
}
