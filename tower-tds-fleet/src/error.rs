//! Faults of the store, grouped by what you do about them.

use std::{error, fmt};

use redis::RedisError;
use tower_tds_outcome::Secrets;

/// Fault of a fleet's store, or of the fleet's settings.
///
/// Displays the fault with the store's own message, without any password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetError {
    kind: StoreFault,
    detail: String,
}

/// Faults of a store, grouped by remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum StoreFault {
    /// No answer in time: the host is unknown, the server is down, the network is cut, or the port
    /// of a `rediss://` address has no TLS.
    Unreachable,
    /// The user or the password is wrong.
    Credentials,
    /// The user lacks the right to run a command.
    MissingRight,
    /// Either side refused the other's certificate, or the program has no cryptography provider.
    Tls,
    /// The server is a replica, or refuses writes for another reason.
    ReadOnly,
    /// The server has reached its memory limit.
    OutOfMemory,
    /// The node of a cluster does not have the fleet's slot.
    WrongNode,
    /// The other members have quotas with other intervals.
    OtherQuotas,
    /// Other live members of the fleet call another service: give this one a fleet of its own.
    OtherService,
    /// The settings of this member cannot be used.
    Settings,
    /// Any other error of the server.
    Other,
}

// === impl StoreFault ===

impl StoreFault {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "the store is unreachable",
            Self::Credentials => "the store refuses the user or the password",
            Self::MissingRight => "the store's user lacks a right",
            Self::Tls => "no TLS to the store",
            Self::ReadOnly => "the store refuses writes",
            Self::OutOfMemory => "the store is out of memory",
            Self::WrongNode => "this node does not have the fleet's slot: use a cluster client",
            Self::OtherQuotas => "other members have quotas with other intervals",
            Self::OtherService => "other members call another service: choose another name",
            Self::Settings => "the fleet's settings cannot be used",
            Self::Other => "the store failed",
        }
    }
}

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl FleetError ===

impl FleetError {
    /// Returns the kind of the fault, by which a program chooses its next step. For a person, print the
    /// error itself.
    #[must_use]
    pub fn kind(&self) -> StoreFault {
        self.kind
    }

    fn new(kind: StoreFault, detail: &str) -> Self {
        let detail = detail.to_owned();
        Self { kind, detail }
    }

    pub(crate) fn settings(detail: &str) -> Self {
        Self::new(StoreFault::Settings, detail)
    }

    pub(crate) fn unanswered() -> Self {
        Self::new(StoreFault::Unreachable, "no answer in time")
    }
}

impl From<RedisError> for FleetError {
    fn from(error: RedisError) -> Self {
        // By text: error codes are not enough, because a script wraps the errors of its commands in its
        // own message.
        let said = error.to_string();
        let text = said.to_lowercase();
        let named = KINDS.iter().find(|(part, _)| text.contains(part));
        let kind = match named {
            Some((_, kind)) => *kind,
            None if error.is_io_error() => StoreFault::Unreachable,
            None => StoreFault::Other,
        };
        let detail = Secrets::default().line(&said);
        Self { kind, detail }
    }
}

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.detail)?;
        if self.kind == StoreFault::MissingRight {
            f.write_str(RIGHTS)?;
        }
        Ok(())
    }
}

impl error::Error for FleetError {}

/// Whether the fault lasts until an operator acts.
pub(crate) const fn is_lasting(fault: StoreFault) -> bool {
    !matches!(
        fault,
        StoreFault::Unreachable
            | StoreFault::ReadOnly
            | StoreFault::OutOfMemory
            | StoreFault::Other
    )
}

/// Redis 7.0 does not name the command that a script may not run.
const RIGHTS: &str = "; a fleet needs +evalsha +script|load +info +time +hgetall +hset +hdel +pexpire on {name}:shares";

/// Parts of error messages, in lower case. The first that is found decides.
const KINDS: [(&str, StoreFault); 17] = [
    ("the other members call", StoreFault::OtherService),
    ("quotas", StoreFault::OtherQuotas),
    ("wrongpass", StoreFault::Credentials),
    ("authentication", StoreFault::Credentials),
    ("noperm", StoreFault::MissingRight),
    ("can't run this command", StoreFault::MissingRight),
    ("can't access", StoreFault::MissingRight),
    ("certificate", StoreFault::Tls),
    ("cryptography", StoreFault::Tls),
    ("fatal alert", StoreFault::Tls),
    ("corrupt message", StoreFault::Tls),
    ("peer is incompatible", StoreFault::Tls),
    ("oom", StoreFault::OutOfMemory),
    ("readonly", StoreFault::ReadOnly),
    ("misconf", StoreFault::ReadOnly),
    ("moved", StoreFault::WrongNode),
    ("crossslot", StoreFault::WrongNode),
];
