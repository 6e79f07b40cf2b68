//! What a limiter tells an operator: rare, and never on the path of a request that went well.

use std::time::Duration;

use crate::Rung;

/// After the locks are released: a subscriber may well ask for a snapshot. The certificate says
/// how many requests the service can have counted in an interval at the most, by what was sent.
pub(crate) fn refused_for_the_rate(rung: Rung, certificate: u64) {
    tracing::warn!(
        ?rung,
        certificate,
        "refused for the rate in spite of the rules: silent for a second, and stricter"
    );
}

pub(crate) fn clean_for_long(rung: Rung) {
    tracing::info!(?rung, "no refusal for long: one rung up");
}

pub(crate) fn paused(wait: Duration) {
    tracing::warn!(
        ?wait,
        "the service refuses this credential for a time: all its calls wait"
    );
}

pub(crate) fn connections_refused() {
    tracing::warn!("the service counts too many connections: does somebody share this address?");
}
