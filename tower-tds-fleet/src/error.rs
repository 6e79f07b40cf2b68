//! Faults of the store, grouped by what you do about them.

use std::{error, fmt};

use redis::RedisError;
use tower_tds_outcome::Secrets;

/// Fault of a fleet's store, or of the fleet's settings, by what you do about it.
///
/// Each holds the store's own message, without any password, and displays it after its own text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FleetError {
    /// No answer in time: the host is unknown, the server is down, the network is cut, or the port
    /// of a `rediss://` address has no TLS.
    Unreachable(String),
    /// The user or the password is wrong.
    Credentials(String),
    /// The user lacks the right to run a command.
    MissingRight(String),
    /// Either side refused the other's certificate, or the program has no cryptography provider.
    Tls(String),
    /// The server is a replica, or refuses writes for another reason.
    ReadOnly(String),
    /// The server has reached its memory limit.
    OutOfMemory(String),
    /// The node of a cluster does not have the fleet's slot.
    WrongNode(String),
    /// The other members have quotas with other intervals.
    OtherQuotas(String),
    /// Other live members of the fleet call another service: give this one a fleet of its own.
    OtherService(String),
    /// The settings of this member cannot be used.
    Settings(String),
    /// Any other error of the server.
    Other(String),
}

// === impl FleetError ===

impl FleetError {
    pub(crate) fn settings(message: &str) -> Self {
        Self::Settings(message.to_owned())
    }

    pub(crate) fn unanswered() -> Self {
        Self::Unreachable("no answer in time".to_owned())
    }

    /// Returns its own text, and the message that it holds.
    pub(crate) fn texts(&self) -> (&'static str, &str) {
        match self {
            Self::Unreachable(it) => ("the store is unreachable", it),
            Self::Credentials(it) => ("the store refuses the user or the password", it),
            Self::MissingRight(it) => ("the store's user lacks a right", it),
            Self::Tls(it) => ("no TLS to the store", it),
            Self::ReadOnly(it) => ("the store refuses writes", it),
            Self::OutOfMemory(it) => ("the store is out of memory", it),
            Self::WrongNode(it) => (
                "this node does not have the fleet's slot: use a cluster client",
                it,
            ),
            Self::OtherQuotas(it) => ("other members have quotas with other intervals", it),
            Self::OtherService(it) => (
                "other members call another service: choose another name",
                it,
            ),
            Self::Settings(it) => ("the fleet's settings cannot be used", it),
            Self::Other(it) => ("the store failed", it),
        }
    }

    /// Whether the fault lasts until an operator acts.
    pub(crate) fn is_lasting(&self) -> bool {
        !matches!(
            self,
            Self::Unreachable(_) | Self::ReadOnly(_) | Self::OutOfMemory(_) | Self::Other(_)
        )
    }
}

impl From<RedisError> for FleetError {
    fn from(error: RedisError) -> Self {
        // By text: error codes are not enough, because a script wraps the errors of its commands in its
        // own message.
        let said = error.to_string();
        let text = said.to_lowercase();
        let named = FAULTS.iter().find(|(part, _)| text.contains(part));
        let fault = match named {
            Some((_, fault)) => *fault,
            None if error.is_io_error() => Self::Unreachable,
            None => Self::Other,
        };
        fault(Secrets::default().line(&said))
    }
}

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, message) = self.texts();
        write!(f, "{text}: {message}")?;
        if let Self::MissingRight(_) = self {
            f.write_str(RIGHTS)?;
        }
        Ok(())
    }
}

impl error::Error for FleetError {}

/// A variant of the error, without its message.
type Fault = fn(String) -> FleetError;

/// Redis 7.0 does not name the command that a script may not run.
const RIGHTS: &str = "; a fleet needs +evalsha +script|load +info +time +hgetall +hset +hdel +pexpire on {name}:shares";

/// Parts of error messages, in lower case. The first that is found decides.
const FAULTS: [(&str, Fault); 17] = [
    ("the other members call", FleetError::OtherService),
    ("quotas", FleetError::OtherQuotas),
    ("wrongpass", FleetError::Credentials),
    ("authentication", FleetError::Credentials),
    ("noperm", FleetError::MissingRight),
    ("can't run this command", FleetError::MissingRight),
    ("can't access", FleetError::MissingRight),
    ("certificate", FleetError::Tls),
    ("cryptography", FleetError::Tls),
    ("fatal alert", FleetError::Tls),
    ("corrupt message", FleetError::Tls),
    ("peer is incompatible", FleetError::Tls),
    ("oom", FleetError::OutOfMemory),
    ("readonly", FleetError::ReadOnly),
    ("misconf", FleetError::ReadOnly),
    ("moved", FleetError::WrongNode),
    ("crossslot", FleetError::WrongNode),
];
