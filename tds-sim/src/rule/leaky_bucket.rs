//! The leaky bucket of nginx's `limit_req`, in nginx's arithmetic.

use std::{num::NonZeroU128, time::Duration};

/// Accepts while the bucket would hold at most `burst` beside the arrival in service.
#[derive(Debug)]
pub(super) struct LeakyBucket {
    /// Thousandths of a request that drain in a second.
    rate: u128,
    /// Thousandths of a request.
    burst: u128,
    /// Thousandths of a request that are ahead of the drain; none before the first arrival.
    excess: Option<u128>,
    /// When `excess` was right, in milliseconds.
    last: u128,
}

// === impl LeakyBucket ===

impl LeakyBucket {
    pub(super) fn new(limit: u32, per: Duration, burst: u32) -> Self {
        let per = NonZeroU128::new(per.as_nanos()).unwrap_or(NonZeroU128::MIN);
        Self {
            rate: REQUEST
                .saturating_mul(u128::from(limit))
                .saturating_mul(NANOS_PER_SECOND)
                / per,
            burst: REQUEST.saturating_mul(u128::from(burst)),
            excess: None,
            last: 0,
        }
    }

    pub(super) fn arrive_at(&mut self, now: Duration) -> bool {
        let now = now.as_millis();
        let excess = match self.excess {
            None => 0,
            // The arrival is added before the level is cut at zero, so that it leaves an idle
            // bucket empty. The part of a thousandth that drained is lost with each arrival.
            Some(excess) => {
                let drained = self.rate.saturating_mul(now.saturating_sub(self.last)) / 1000;
                excess.saturating_add(REQUEST).saturating_sub(drained)
            }
        };
        let accept = excess <= self.burst;
        if accept {
            self.excess = Some(excess);
            self.last = now;
        }
        accept
    }
}

/// nginx counts requests in thousandths (`ngx_http_limit_req_module.c`, "integer value, 1
/// corresponds to 0.001 r/s").
const REQUEST: u128 = 1000;

const NANOS_PER_SECOND: u128 = 1_000_000_000;
