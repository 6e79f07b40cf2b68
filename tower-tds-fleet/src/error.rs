//! The errors of joining a fleet.

use std::{error, fmt};

/// A fleet that cannot be joined as it is described.
///
/// A store that cannot be reached is no such error: the fleet looks for it until it is there, and its
/// calls say so.
#[derive(Debug)]
pub struct FleetError {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Url(redis::RedisError),
    Quotas,
    Name,
    Share,
    Thread(std::io::Error),
}

// === impl FleetError ===

impl FleetError {
    pub(crate) fn url(error: redis::RedisError) -> Self {
        Self {
            kind: Kind::Url(error),
        }
    }

    pub(crate) fn quotas() -> Self {
        Self { kind: Kind::Quotas }
    }

    pub(crate) fn name() -> Self {
        Self { kind: Kind::Name }
    }

    pub(crate) fn share() -> Self {
        Self { kind: Kind::Share }
    }

    pub(crate) fn thread(error: std::io::Error) -> Self {
        Self {
            kind: Kind::Thread(error),
        }
    }
}

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Url(_) => {
                "the store's URL cannot be used: give redis://host:6379/, or rediss:// with the feature `ring` or \
                 `aws-lc-rs`"
            }
            Kind::Quotas => "a fleet keeps one quota, and these limits have several: take Limits::new for the one that is shared",
            Kind::Share => "a share without the store is at most half of the quota",
            Kind::Name => "a fleet's name is 1 to 100 letters, digits, '-', '_' and '.'",
            Kind::Thread(_) => "the thread that talks to the store cannot be started",
        })
    }
}

impl error::Error for FleetError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &self.kind {
            Kind::Url(error) => Some(error),
            Kind::Thread(error) => Some(error),
            Kind::Quotas | Kind::Name | Kind::Share => None,
        }
    }
}
