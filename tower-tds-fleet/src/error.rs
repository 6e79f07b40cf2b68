//! Faults of the store, by what an operator does about them.

use std::{error, fmt};

use redis::RedisError;
use tower_tds_limits::StoreFault;

/// A fault of a fleet's store, or of the fleet's settings.
///
/// Its text names the next step, and includes the store's own message. It holds no password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetError {
    kind: StoreFault,
    detail: String,
}

// === impl FleetError ===

impl FleetError {
    /// The kind, by which a program decides.
    #[must_use]
    pub fn kind(&self) -> StoreFault {
        self.kind
    }

    pub(crate) fn settings(detail: &str) -> Self {
        let (kind, detail) = (StoreFault::Settings, detail.to_owned());
        Self { kind, detail }
    }

    pub(crate) fn unanswered() -> Self {
        Self {
            kind: StoreFault::Unreachable,
            detail: "no answer within 2 s".to_owned(),
        }
    }

    /// A question that waited too long for its connection: the next one has it.
    pub(crate) fn late() -> Self {
        Self {
            kind: StoreFault::Unreachable,
            detail: "LATE: the connection took long".to_owned(),
        }
    }

    /// Whether the question is only to be asked again.
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
            None if error.is_io_error() => StoreFault::Unreachable,
            None => StoreFault::Other,
        };
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

/// Parts of messages, the first that is found decides.
const KINDS: [(&str, StoreFault); 21] = [
    ("QUOTAS", StoreFault::OtherQuotas),
    ("WRONGPASS", StoreFault::Credentials),
    ("NOAUTH", StoreFault::Credentials),
    ("AuthenticationFailed", StoreFault::Credentials),
    ("authentication failed", StoreFault::Credentials),
    ("NOPERM", StoreFault::MissingRight),
    ("can't run this command", StoreFault::MissingRight),
    (
        "can't access at least one of the keys",
        StoreFault::MissingRight,
    ),
    ("ertificate", StoreFault::Tls),
    ("there is no cryptography", StoreFault::Tls),
    ("READONLY", StoreFault::ReadOnly),
    ("ReadOnly", StoreFault::ReadOnly),
    ("MISCONF", StoreFault::ReadOnly),
    ("OOM", StoreFault::OutOfMemory),
    ("MOVED", StoreFault::WrongNode),
    ("CROSSSLOT", StoreFault::WrongNode),
    ("Moved", StoreFault::WrongNode),
    ("CrossSlot", StoreFault::WrongNode),
    ("ClusterDown", StoreFault::Unreachable),
    ("CLUSTERDOWN", StoreFault::Unreachable),
    ("InvalidClientConfig", StoreFault::Settings),
];
