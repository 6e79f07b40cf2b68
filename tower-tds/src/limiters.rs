//! How the limits of one address are divided between data and tokens.

use std::{num::NonZeroU32, time::Duration};

use tower_tds_errors::Bodies;
use tower_tds_limits::{Limiter, Limits, Quota};

use crate::BuildError;

/// The limits of one IP address, shared by the clients behind it.
#[derive(Debug, Clone)]
pub(crate) struct Limiters {
    pub(crate) data: Limiter,
    /// For the token calls' one socket alone.
    pub(crate) token_socket: Limiter,
    /// Those that are being read: what a call waits for that was refused for its connections.
    pub(crate) bodies: Bodies,
}

// === impl Limiters ===

impl Limiters {
    /// A token call must never wait for a data socket, and both count at the service: one socket
    /// is the token's, and the data calls have the others.
    pub(crate) fn new(limits: Limits) -> Result<Self, BuildError> {
        let data = limits.most_connections().get().checked_sub(1);
        let Some(data) = data.and_then(NonZeroU32::new) else {
            return Err(BuildError::new(
                "one connection is for the token endpoint: allow at least two",
            ));
        };
        // Beyond its sockets a call would be let in to wait for one, and that by its timeouts.
        let in_flight = limits.most_in_flight().min(data);
        Ok(Self {
            data: Limiter::new(limits.connections(data).in_flight(in_flight)),
            token_socket: Limiter::new(Limits::default().connections(NonZeroU32::MIN)),
            bodies: Bodies::new(),
        })
    }

    /// For how long a token call may wait for its permit. Nobody goes before it, so that it has to
    /// wait for those of an interval, of which some ways of counting remember two, and for the
    /// slowest of their answers.
    pub(crate) fn longest_turn(&self) -> Duration {
        let intervals = self.data.limits().quotas().iter().map(Quota::per);
        let longest = intervals.max().unwrap_or_default();
        longest.saturating_mul(2).saturating_add(SLOW_ANSWER)
    }

    pub(crate) fn another_credential(&self) -> Self {
        Self {
            data: self.data.another_credential(),
            token_socket: self.token_socket.clone(),
            bodies: self.bodies.clone(),
        }
    }
}

/// What the limits themselves wait for an answer that does not come: `Limits::lost_after`.
const SLOW_ANSWER: Duration = Duration::from_secs(10);
