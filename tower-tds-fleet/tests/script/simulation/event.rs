//! The events of the simulation.

use std::time::Duration;

use crate::{
    member::{Heard, Id, Reply},
    store::Told,
};

/// What happens; to which process, on which of its connections.
pub(super) enum What {
    Demand,
    Look(usize),
    Ask(usize, u32, Asked),
    Answer(usize, u32, Reply),
    Push(usize, u32, Duration),
    Broken(usize, u32),
    Send(usize, Id),
    /// The service counts it, and answers or not.
    Arrive(usize, Id, bool),
    Response(usize, Id, Heard),
    GiveUp(usize, Id),
}

/// What a member asks, as the script reads it.
pub(super) struct Question {
    pub(super) want: usize,
    pub(super) share: i64,
    pub(super) numbers: [i64; 3],
    pub(super) told: Vec<Told>,
}

/// On its way to the store.
pub(super) struct Asked {
    pub(super) server: u32,
    pub(super) question: Question,
    pub(super) answered: bool,
}

// === impl What ===

impl What {
    /// To whom it happens, if it needs to run for that.
    pub(super) fn addressee(&self) -> Option<usize> {
        match self {
            Self::Look(who)
            | Self::Answer(who, ..)
            | Self::Push(who, ..)
            | Self::Broken(who, _)
            | Self::Send(who, _)
            | Self::Response(who, ..)
            | Self::GiveUp(who, _) => Some(*who),
            Self::Demand | Self::Ask(..) | Self::Arrive(..) => None,
        }
    }
}
