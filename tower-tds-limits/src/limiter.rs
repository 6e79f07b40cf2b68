//! The object that layers, clients and clones share.

use std::{fmt, sync::Arc};

use crate::{
    Limits, clock,
    connection::Connections,
    gate::{Gate, Waiter},
    requests::Requests,
};

/// Keeps whatever shares it inside one set of limits.
///
/// Give clones to as many layers and clients as share an IP address. It has no background task
/// and can be made outside a runtime.
///
/// # Clone
/// Clones share everything.
///
/// # Examples
/// ```
/// use tower_tds_limits::{Limiter, Limits};
///
/// let limiter = Limiter::new(Limits::default());
/// assert_eq!(limiter.snapshot().connections, 0);
/// ```
#[derive(Clone)]
pub struct Limiter {
    limits: Arc<Limits>,
    requests: Arc<Gate<Requests>>,
    connections: Arc<Gate<Connections>>,
}

/// What a [`Limiter`] holds at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Requests between their grant and the end of their bodies.
    pub in_flight: u32,
    /// Permits of the fullest quota that are live: granted and not yet back.
    pub live: u64,
    /// Requests that wait for a permit.
    pub waiting: usize,
    /// Sockets between the permit before `connect` and their close.
    pub connections: u32,
    /// Connects that wait for a permit.
    pub connects_waiting: usize,
}

// === impl Limiter ===

impl Limiter {
    /// Keeps within `limits`, starting with every permit free.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            requests: Arc::new(Gate::new(Requests::new(&limits))),
            connections: Arc::new(Gate::new(Connections::new(&limits))),
            limits: Arc::new(limits),
        }
    }

    /// The limits kept.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What is held now. Takes the two locks in turn; meant for gauges and tests.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let now = clock::now();
        let (in_flight, live, waiting) = self
            .requests
            .read(|requests, waiting| (requests.in_flight(), requests.live_at(now), waiting));
        let (connections, connects_waiting) = self
            .connections
            .read(|connections, waiting| (connections.open(), waiting));
        Snapshot {
            in_flight,
            live,
            waiting,
            connections,
            connects_waiting,
        }
    }

    pub(crate) fn request_waiter(&self) -> Waiter<Requests> {
        Waiter::new(Arc::clone(&self.requests), self.limits.wait())
    }

    pub(crate) fn connection_waiter(&self) -> Waiter<Connections> {
        Waiter::new(Arc::clone(&self.connections), self.limits.wait())
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("limits", &self.limits)
            .field("now", &self.snapshot())
            .finish_non_exhaustive()
    }
}
