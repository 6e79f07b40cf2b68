//! One socket's place in its limit, from before `connect` until its server has closed.

use std::{sync::Arc, task::Waker};

use tokio::time::Instant;

use crate::{
    connection::{
        background::Begun,
        handle::Handle,
        sockets::{Connections, SocketKey},
        usage::{Change, Origin, Usage},
    },
    queue::{Limit, Queue},
};

/// A grant. Dropping it gives the place to the next.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    queue: Arc<Queue<Connections>>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    // ## Connecting => Open
    Connecting,
    // ## Open => Closing
    Open(SocketKey),
    Closing(SocketKey),
}

/// An open socket's.
#[derive(Debug)]
pub(super) struct Place {
    queue: Arc<Queue<Connections>>,
    key: SocketKey,
    usage: Arc<Usage>,
    begun: Begun,
}

// === impl ConnectionPermit ===

impl ConnectionPermit {
    /// That of a connect that begins now.
    pub(super) fn connecting(queue: &Arc<Queue<Connections>>) -> Self {
        Self {
            queue: Arc::clone(queue),
            stage: Stage::Connecting,
        }
    }

    /// The connecting came to a socket.
    pub(super) fn opened(&mut self, begun: Begun) -> Arc<Place> {
        let usage = Arc::new(Usage::new(if begun.is_orphaned() {
            Origin::Background
        } else {
            Origin::Request
        }));
        let opened = |connections: &mut Connections, now| {
            let key = connections.opened(Arc::clone(&usage));
            (key, connections.settle(key, now))
        };
        let (key, leaving) = self.queue.update_now(opened);
        wake_readers(leaving);
        self.stage = Stage::Open(key);
        Arc::new(Place {
            queue: Arc::clone(&self.queue),
            key,
            usage,
            begun,
        })
    }

    /// The socket has ended on this side.
    pub(super) fn ended(&mut self) {
        if let Stage::Open(key) = self.stage {
            self.stage = Stage::Closing(key);
            let ended = |connections: &mut Connections, now| connections.ended(key, now);
            self.queue.update_now(ended);
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.ended();
        let stage = self.stage;
        self.queue.update(|connections| match stage {
            Stage::Closing(key) => connections.closed(key),
            Stage::Connecting | Stage::Open(_) => connections.withdraw(()),
        });
    }
}

// === impl Place ===

impl Place {
    pub(super) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// What rides with the connection, from the end of its making.
    pub(super) fn connected(self: &Arc<Self>) -> Handle {
        self.told(self.usage.made(self.begun.is_orphaned()));
        Handle::of(Arc::clone(self))
    }

    /// A write has gone out, or has found no room.
    pub(super) fn wrote(&self, blocked: bool) {
        self.told(self.usage.wrote(blocked));
    }

    /// Whether the reader is to be given the end of the stream; if not, it is woken for it.
    pub(super) fn is_to_leave(&self, reader: &Waker) -> bool {
        self.usage.is_to_leave(reader)
    }

    /// Has the limit look at what the socket is used for, if that has changed.
    pub(super) fn told<R>(&self, change: Change<R>) -> R {
        if change.news {
            let key = self.key;
            self.tell(|connections, now| connections.settle(key, now));
        }
        change.told
    }

    /// The service has accepted the socket for the first time.
    pub(super) fn accepted(&self) {
        let key = self.key;
        self.queue.update(|connections| connections.accepted(key));
    }

    /// The service has answered 416 on it, which may be about connections.
    pub(super) fn maybe_refused(&self, had_worked: bool) {
        let key = self.key;
        self.queue
            .update(|connections| connections.maybe_refused(key, had_worked));
    }

    /// The socket was given to another request before anybody knew that it was free.
    pub(super) fn handed_on(&self) {
        self.tell(Connections::handed_on);
    }

    fn tell(&self, event: impl FnOnce(&mut Connections, Instant) -> Vec<Arc<Usage>>) {
        wake_readers(self.queue.update_now(event));
    }
}

/// Lets those who were asked to leave look; called without any lock held.
pub(super) fn wake_readers(asked: Vec<Arc<Usage>>) {
    for reader in asked.iter().filter_map(|usage| usage.take_reader()) {
        reader.wake();
    }
}
