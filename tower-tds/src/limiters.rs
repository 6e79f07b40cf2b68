//! How the limits of one address are divided between data and tokens.

use std::{num::NonZeroU32, time::Duration};

use tower_tds_limits::{Limiter, Limits, Quota};

use crate::BuildError;

/// The limits of one IP address, shared by the clients behind it.
#[derive(Debug, Clone)]
pub(crate) struct Limiters {
    pub(crate) data: Limiter,
    /// For the sockets of token calls alone.
    pub(crate) token_sockets: Limiter,
}

// === impl Limiters ===

impl Limiters {
    /// A token call must never wait for a data socket, and both count at the service: one or two
    /// sockets are the token's, and the data calls have the others. With a second one a socket
    /// whose server has fallen silent, and which counts until it is surely closed, keeps no token
    /// call waiting.
    pub(crate) fn new(limits: Limits) -> Result<Self, BuildError> {
        let most = limits.most_connections();
        let tokens = if most < TWO_FROM {
            NonZeroU32::MIN
        } else {
            NonZeroU32::MIN.saturating_add(1)
        };
        let data = most.get().checked_sub(tokens.get());
        let Some(data) = data.and_then(NonZeroU32::new) else {
            return Err(BuildError::new(
                "one connection is for the token endpoint: allow at least two",
            ));
        };
        // Beyond its sockets a call would be let in to wait for one, and that by its timeouts.
        let in_flight = limits.most_in_flight().min(data);
        Ok(Self {
            data: Limiter::new(limits.connections(data).in_flight(in_flight)),
            token_sockets: Limiter::new(Limits::default().connections(tokens)),
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
            token_sockets: self.token_sockets.clone(),
        }
    }
}

/// A second socket for tokens is then at most a ninth of what is left for data.
const TWO_FROM: NonZeroU32 = NonZeroU32::MIN.saturating_add(10 - 1);

/// What the limits themselves wait for an answer that does not come: `Limits::lost_after`.
const SLOW_ANSWER: Duration = Duration::from_secs(10);
