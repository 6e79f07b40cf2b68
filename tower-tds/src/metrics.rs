//! Metrics of calls, for the `metrics` facade.

use std::time::Duration;

use metrics::{Label, counter, gauge, histogram};
use tokio::time::Instant;
use tower_tds_errors::Error;
use tower_tds_limits::Rung;

use crate::{
    Status,
    trace::{CANCELLED, Name, Of},
};

/// The start of a call or an attempt, and the name of its client.
#[derive(Debug)]
pub(crate) struct Begun {
    at: Instant,
    name: Name,
}

// === impl Begun ===

impl Begun {
    pub(crate) fn now(name: &Name) -> Self {
        Self {
            at: Instant::now(),
            name: name.clone(),
        }
    }

    pub(crate) fn ended(&self, of: Of, error: Option<&Error>) {
        self.count(of, error.map_or("success", |error| error.kind().as_str()));
    }

    pub(crate) fn cancelled(&self, of: Of) {
        self.count(of, CANCELLED);
    }

    fn count(&self, of: Of, kind: &'static str) {
        let counted = labels(&self.name, Some(("kind", kind)));
        if of == Of::Attempts {
            counter!("tds_attempts_total", counted).increment(1);
            return;
        }
        counter!("tds_calls_total", counted).increment(1);
        let took = self.at.elapsed().as_secs_f64();
        histogram!("tds_call_seconds", labels(&self.name, None)).record(took);
    }
}

/// The labels of a metric: its own, and the client's.
fn labels(name: &Name, own: Option<(&'static str, &'static str)>) -> Vec<Label> {
    let own = own.map(|(key, value)| Label::from_static_parts(key, value));
    let name = name.clone().map(|name| Label::new("client", name));
    own.into_iter().chain(name).collect()
}

// === impl Status ===

impl Status {
    /// Sets the gauges: permits, sockets, the token, the rung.
    ///
    /// Call it for each client before each scrape. Several clients need a
    /// [name](crate::Builder::name) each, which becomes the label `client` of their metrics;
    /// otherwise they overwrite each other. Clients that share [limits](crate::SharedLimits) show
    /// the same limits.
    ///
    /// | metric | kind | label | what it is |
    /// |---|---|---|---|
    /// | `tds_calls_total` | counter | `kind` | ended calls, by outcome: `success`, the kind of the error, or `cancelled` |
    /// | `tds_call_seconds` | histogram | | from the call to its response head or its error |
    /// | `tds_attempts_total` | counter | `kind` | ended attempts, by outcome; `cancelled` includes those that a deadline ended |
    /// | `tds_calls_under_way` | gauge | | calls that wait for a head |
    /// | `tds_waiting` | gauge | | calls that wait for a permit |
    /// | `tds_permits_live`, `tds_permits_quota` | gauge | | permits live, and the quota |
    /// | `tds_in_flight` | gauge | | from the grant to the end of the body |
    /// | `tds_sockets`, `tds_sockets_most` | gauge | | open sockets, and the limit |
    /// | `tds_wait_seconds` | histogram | `cause` | ended waits of attempts, of all clients of the process, by [cause](tower_tds_limits::WaitCause): `readiness` (such as the token), `window`, `counter`, `bucket`, `in_flight`, `silence`, `pause`, `connection`, `response` |
    /// | `tds_granted_total` | counter | | requests granted |
    /// | `tds_certificate` | gauge | | the most requests that can have been counted in any interval of the first quota |
    /// | `tds_rung` | gauge | | 0: as set; 1: stricter rules; 2: one at a time; 3: slower still |
    /// | `tds_paused_seconds`, `tds_silent_seconds` | gauge | | the rest of a pause or a silence, or 0 |
    /// | `tds_token_life_seconds` | gauge | | the rest of the token's life; 0: no token |
    /// | `tds_token_refused_seconds` | gauge | | how long the service has refused the token, or 0 |
    /// | `tds_tokens_total` | counter | | tokens received |
    ///
    /// No path, host or key is a label. `grafana.json` in this crate is a dashboard of these
    /// metrics.
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn record(&self) {
        let (limits, token) = (self.limits(), self.token());
        let labels = || labels(self.name(), None);
        let seconds = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64();
        #[expect(
            clippy::cast_precision_loss,
            reason = "a count that a gauge rounds is beyond any of these"
        )]
        let count = |n: u64| n as f64;
        let size = |n: usize| count(u64::try_from(n).unwrap_or(u64::MAX));
        gauge!("tds_calls_under_way", labels()).set(size(self.calls()));
        gauge!("tds_waiting", labels()).set(size(limits.waiting));
        gauge!("tds_permits_live", labels()).set(count(limits.live));
        gauge!("tds_permits_quota", labels()).set(count(self.quota()));
        gauge!("tds_in_flight", labels()).set(f64::from(limits.in_flight));
        gauge!("tds_sockets", labels()).set(f64::from(limits.connections));
        gauge!("tds_sockets_most", labels()).set(f64::from(limits.most_connections));
        counter!("tds_granted_total", labels()).absolute(limits.granted);
        gauge!("tds_certificate", labels()).set(count(limits.certificate));
        gauge!("tds_rung", labels()).set(match limits.rung {
            Rung::Proven => 0.0,
            Rung::Strict => 1.0,
            Rung::Serial => 2.0,
            Rung::Slowed(_) | _ => 3.0,
        });
        gauge!("tds_paused_seconds", labels()).set(seconds(limits.paused_for));
        gauge!("tds_silent_seconds", labels()).set(seconds(limits.silent_for));
        gauge!("tds_token_life_seconds", labels()).set(seconds(token.life_left));
        gauge!("tds_token_refused_seconds", labels()).set(seconds(token.refused_for));
        counter!("tds_tokens_total", labels()).absolute(token.generation);
    }
}
