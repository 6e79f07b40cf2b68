//! What decides whether one more socket may be opened.

use std::sync::Arc;

use tokio::time::Instant;

use crate::{
    Limits,
    gate::{Admit, Earliest, Gate, Permit},
};

/// The sockets between the permit before `connect` and their close.
#[derive(Debug)]
pub(crate) struct Connections {
    open: u32,
    most: u32,
}

/// One socket's place inside the limit. Dropping it gives the place to the next.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    gate: Arc<Gate<Connections>>,
}

// === impl Connections ===

impl Connections {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            open: 0,
            most: limits.most_connections().get(),
        }
    }

    pub(crate) fn open(&self) -> u32 {
        self.open
    }
}

impl Admit for Connections {
    type Grant = ();

    fn earliest(&mut self, _now: Instant) -> Earliest {
        if self.open < self.most {
            Earliest::Now
        } else {
            Earliest::OnReturn
        }
    }

    fn admit(&mut self, _now: Instant) {
        self.open = self.open.saturating_add(1);
    }

    fn admit_undated(&mut self) -> Option<()> {
        (self.open < self.most).then(|| self.open = self.open.saturating_add(1))
    }
}

// === impl ConnectionPermit ===

impl Permit for ConnectionPermit {
    type Rule = Connections;
    type Source = Arc<Gate<Connections>>;

    fn gate(source: &Self::Source) -> &Arc<Gate<Connections>> {
        source
    }

    fn granted(source: &Self::Source, (): ()) -> Self {
        Self {
            gate: Arc::clone(source),
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.gate.update(|connections| {
            connections.open = connections.open.saturating_sub(1);
        });
    }
}
