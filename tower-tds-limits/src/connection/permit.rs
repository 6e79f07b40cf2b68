//! One socket's place inside the limit.

use std::sync::Arc;

use crate::{
    connection::{
        Connections,
        connections::make_room,
        exit::{Exit, wake_readers},
        sockets::{Rest, SocketKey},
    },
    queue::{Permit, Queue},
};

/// A grant. Dropping it gives the place to the next.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    gate: Arc<Queue<Connections>>,
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

// === impl ConnectionPermit ===

impl ConnectionPermit {
    /// The connecting came to a socket.
    pub(super) fn opened(&mut self, exit: &Arc<Exit>) {
        let opened = |connections: &mut Connections| connections.opened(Arc::clone(exit));
        self.stage = Stage::Open(self.gate.update(opened));
    }

    /// The socket carries nothing now.
    pub(super) fn rest(&self, rest: Rest) {
        if let Stage::Open(key) = self.stage {
            let rest = |connections: &mut Connections, now| connections.rest(key, rest, now);
            let asked = self.gate.update_now(rest);
            wake_readers(asked);
        }
    }

    /// The socket carries a request again.
    pub(super) fn work(&self) {
        if let Stage::Open(key) = self.stage {
            let was_asked = self.gate.update(|connections| connections.work(key));
            if was_asked {
                make_room(&self.gate);
            }
        }
    }

    /// The socket has ended on this side.
    pub(super) fn ended(&mut self) {
        if let Stage::Open(key) = self.stage {
            self.stage = Stage::Closing(key);
            let ended = |connections: &mut Connections, now| connections.ended(key, now);
            self.gate.update_now(ended);
        }
    }
}

impl Permit for ConnectionPermit {
    type Limit = Connections;
    type Source = Arc<Queue<Connections>>;

    fn queue(source: &Self::Source) -> &Arc<Queue<Connections>> {
        source
    }

    fn granted(source: &Self::Source, (): ()) -> Self {
        Self {
            gate: Arc::clone(source),
            stage: Stage::Connecting,
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.ended();
        let stage = self.stage;
        self.gate.update(|connections| match stage {
            Stage::Closing(key) => connections.closed(key),
            Stage::Connecting | Stage::Open(_) => connections.give_back(),
        });
    }
}
