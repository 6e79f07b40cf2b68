//! Faults of the store, by what an operator does about them.

use std::{error, fmt};

use redis::RedisError;

/// A fault of a fleet's store, or of the fleet's settings.
///
/// Its text names the next step, and includes the store's own message. It holds no password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetError {
    kind: FleetErrorKind,
    detail: String,
}

/// The kinds of [`FleetError`].
///
/// All but [`Unreachable`](Self::Unreachable), [`ReadOnly`](Self::ReadOnly) and
/// [`OutOfMemory`](Self::OutOfMemory) are errors of the configuration: they last until an operator
/// acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FleetErrorKind {
    /// No answer within two seconds: no such host, no server, a cut network.
    Unreachable,
    /// Wrong user or password.
    Credentials,
    /// The user may not run a command that the script needs.
    MissingRight,
    /// The certificate of either side is not accepted, or there is no cryptography.
    Tls,
    /// A replica, or a server that refuses writes.
    ReadOnly,
    /// The server is at its `maxmemory`.
    OutOfMemory,
    /// A node of a cluster without the fleet's slot.
    WrongNode,
    /// The other members have quotas with other intervals.
    OtherQuotas,
    /// The settings of this member cannot be used.
    Settings,
    /// Any other error of the server.
    Other,
}

// === impl FleetError ===

impl FleetError {
    /// The kind, by which a program decides.
    #[must_use]
    pub fn kind(&self) -> FleetErrorKind {
        self.kind
    }

    pub(crate) fn settings(detail: &str) -> Self {
        let (kind, detail) = (FleetErrorKind::Settings, detail.to_owned());
        Self { kind, detail }
    }

    pub(crate) fn unanswered() -> Self {
        Self {
            kind: FleetErrorKind::Unreachable,
            detail: "no answer within 2 s".to_owned(),
        }
    }

    /// Whether the question of this error has a later one, which was answered.
    pub(crate) fn is_late(&self) -> bool {
        self.detail.contains("LATE")
    }
}

impl From<RedisError> for FleetError {
    fn from(error: RedisError) -> Self {
        let detail = error.to_string();
        // A script passes on errors of its commands inside a message of its own, so codes are not
        // enough.
        let named = KINDS.iter().find(|(text, _)| detail.contains(text));
        let kind = match named {
            Some((_, kind)) => *kind,
            None if error.is_io_error() => FleetErrorKind::Unreachable,
            None => FleetErrorKind::Other,
        };
        Self { kind, detail }
    }
}

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.as_str(), self.detail)
    }
}

impl error::Error for FleetError {}

// === impl FleetErrorKind ===

impl FleetErrorKind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "the store is unreachable",
            Self::Credentials => "the store refuses the user or the password",
            Self::MissingRight => "the store's user lacks a right",
            Self::Tls => "no TLS to the store: check the certificates",
            Self::ReadOnly => "the store refuses writes",
            Self::OutOfMemory => "the store is out of memory",
            Self::WrongNode => "this node does not have the fleet's slot: use a cluster client",
            Self::OtherQuotas => "other members have quotas with other intervals",
            Self::Settings => "the fleet's settings cannot be used",
            Self::Other => "the store failed",
        }
    }

    pub(crate) const fn is_lasting(self) -> bool {
        !matches!(
            self,
            Self::Unreachable | Self::ReadOnly | Self::OutOfMemory | Self::Other
        )
    }
}

/// Parts of messages, the first that is found decides.
const KINDS: [(&str, FleetErrorKind); 17] = [
    ("QUOTAS", FleetErrorKind::OtherQuotas),
    ("WRONGPASS", FleetErrorKind::Credentials),
    ("NOAUTH", FleetErrorKind::Credentials),
    ("AuthenticationFailed", FleetErrorKind::Credentials),
    ("authentication failed", FleetErrorKind::Credentials),
    ("NOPERM", FleetErrorKind::MissingRight),
    ("can't run this command", FleetErrorKind::MissingRight),
    (
        "can't access at least one of the keys",
        FleetErrorKind::MissingRight,
    ),
    ("ertificate", FleetErrorKind::Tls),
    ("there is no cryptography", FleetErrorKind::Tls),
    ("READONLY", FleetErrorKind::ReadOnly),
    ("MISCONF", FleetErrorKind::ReadOnly),
    ("OOM", FleetErrorKind::OutOfMemory),
    ("MOVED", FleetErrorKind::WrongNode),
    ("CROSSSLOT", FleetErrorKind::WrongNode),
    ("CLUSTERDOWN", FleetErrorKind::Unreachable),
    ("InvalidClientConfig", FleetErrorKind::Settings),
];
