//! The delays of a relay.

use tokio::time::Instant;

use crate::{delay::Delay, relay::line::Line};

/// What the network in front of a server is to be like. The default holds nothing up.
///
/// # Examples
/// ```
/// let mut network = tds_sim::Network::default();
/// network.there = "lognormal:10ms:200ms".parse()?;
/// network.back = network.there;
/// network.seed = 7;
/// # Ok::<_, tds_sim::ParseDelayError>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Network {
    /// The delay of each piece from the client to the server, and of each new connection.
    pub there: Delay,
    /// The delay of each piece from the server to the client.
    pub back: Delay,
    /// Where all delays come from.
    pub seed: u64,
    /// The port on 127.0.0.1; 0 takes a free one.
    pub port: u16,
}

// === impl Network ===

impl Network {
    /// The two directions of the connection that is the `number`th since `start`.
    pub(super) fn lines(&self, start: Instant, number: u64) -> [Line; 2] {
        // A generator's fork is as good as a fresh seed, and two near seeds are not alike.
        let mut rng = fastrand::Rng::with_seed(self.seed.wrapping_add(number.wrapping_mul(ODD)));
        let there = Line::new(self.there, rng.fork(), start);
        let back = Line::new(self.back, rng.fork(), start);
        [there, back]
    }
}

/// The golden ratio's fraction in 64 bits: spreads consecutive numbers over all seeds
/// (Knuth, The Art of Computer Programming, volume 3, section 6.4).
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
