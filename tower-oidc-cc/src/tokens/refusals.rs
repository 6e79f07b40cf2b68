//! What a refusal by the service does to the token, and to no other.

use std::time::Duration;

use super::shared::Shared;
use crate::{Event, Judgement, Rejection, finding::Fate};

// === impl Shared ===

impl Shared {
    /// Acts on a judgement about the token of this generation, and says what was done.
    pub(super) fn find(&self, judgement: Judgement, generation: u64) -> Rejection {
        let fate = match judgement {
            Judgement::DeadToken => self.invalidate(generation),
            Judgement::MissingRole => self.doubt(generation),
            Judgement::NoHeader | Judgement::Other => Fate::Kept,
        };
        let finding = Rejection::new(judgement, fate);
        #[cfg(feature = "claims")]
        let finding = finding.with_realm_roles(match judgement {
            Judgement::MissingRole => self.realm_roles(generation),
            Judgement::DeadToken | Judgement::NoHeader | Judgement::Other => None,
        });
        if (judgement, fate) == (Judgement::DeadToken, Fate::Dropped) {
            // Once for each dead token, since late refusals of it find it gone.
            self.tell(&Event::Dropped { generation });
        } else {
            tracing::debug!(generation, ?judgement, ?fate, "the service refused a call");
        }
        finding
    }

    /// Drops the token of this generation, unless others were dropped a moment ago.
    fn invalidate(&self, generation: u64) -> Fate {
        let now = self.now();
        let mut cold = self.lock();
        if cold.token.as_ref().map(|t| t.generation) != Some(generation) {
            return Fate::Superseded;
        }
        if !cold.gap.admit_at(now.steady) {
            return Fate::Kept;
        }
        cold.bury();
        self.slot.empty();
        Fate::Dropped
    }

    /// Renews the token of this generation if it is old, in the background: roles are written into
    /// a token when it is issued, so only a new one can have a role that was granted since.
    fn doubt(&self, generation: u64) -> Fate {
        let now = self.now();
        let mut cold = self.lock();
        let Some(token) = cold.token.as_ref().filter(|t| t.generation == generation) else {
            return Fate::Superseded;
        };
        let old = token.born.age_at(now) >= REISSUE;
        let calm = cold.doubted_at.is_none_or(|at| at.age_at(now) >= REISSUE);
        if old && calm && cold.quiet_at(now).is_zero() {
            cold.doubted_at = Some(now);
            // A demand that nobody waits for: the driver flies, and the token serves meanwhile.
            drop(cold.demand());
        }
        Fate::Kept
    }

    #[cfg(feature = "claims")]
    fn realm_roles(&self, generation: u64) -> Option<Vec<String>> {
        let token = self.lock().token.clone();
        let token = token.filter(|t| t.generation == generation)?;
        crate::claims::realm_roles(token.header())
    }
}

/// An administrator acts in minutes at best, and a service that lacks a role for good costs 24
/// requests a day this way.
const REISSUE: Duration = Duration::from_secs(60 * 60);
