//! TEMPORARY
use crate::{
    Limiter, Limits, WaitCause,
    wait::{Limit, Line, Opens, Shared},
};
use std::num::NonZeroU32;
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Connections {
    open: u32,
    most: NonZeroU32,
}
impl Connections {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            open: 0,
            most: limits.connections,
        }
    }
    pub(crate) fn open(&self) -> u32 {
        self.open
    }
    pub(crate) fn most_at(&self, _: Instant) -> u32 {
        self.most.get()
    }
    pub(crate) fn silent_until(&self, _: Instant) -> Option<Instant> {
        None
    }
}
impl Limit for Connections {
    type Grant = ();
    fn opens(&mut self, _: Line, _: Instant) -> Opens {
        if self.open < self.most.get() {
            Opens::Now
        } else {
            Opens::OnReturn
        }
    }
    fn admit(&mut self, _: Instant) {
        self.open += 1;
    }
    fn cause(&mut self, _: Line, _: Instant) -> WaitCause {
        WaitCause::Connection
    }
}
pub(crate) fn refused(_: &Shared<Connections>) {}
/// x
#[derive(Debug, Clone)]
pub struct ConnectionLimitLayer(Limiter);
