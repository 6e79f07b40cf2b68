//! This crate's only clock, which tests can pause, and the time unit of the rules.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits until the first of these times that are set.
pub(crate) fn poll_timer(
    timer: &mut Option<Pin<Box<Sleep>>>,
    ends: [Option<Instant>; 2],
    cx: &mut Context<'_>,
) -> Poll<()> {
    let Some(ends) = ends.into_iter().flatten().min() else {
        return Poll::Pending;
    };
    // At later polls the clock decides, because the timer of a layer above may fire before this one.
    if timer.is_some() && ends <= now() {
        return Poll::Ready(());
    }
    let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(ends)));
    if timer.deadline() != ends {
        timer.as_mut().reset(ends);
    }
    timer.as_mut().poll(cx)
}

/// Returns for how long the machine has been suspended so far, on systems that count it. A
/// suspension ends the [share](crate::Share).
#[cfg(target_os = "linux")]
pub(crate) fn suspended() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let at = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    let running = at(ClockId::Monotonic);
    at(ClockId::Boottime).saturating_sub(running)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn suspended() -> Duration {
    Duration::ZERO
}

/// Nanoseconds since a limiter's first event. The 64 bits last for 584 years, and arithmetic on
/// them takes one instruction where an `Instant` takes ten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Tick(u64);

/// Turns instants into ticks and back.
#[derive(Debug, Default)]
pub(crate) struct Epoch {
    /// Set by the first event, because a limiter may be created outside the runtime whose clock is
    /// used.
    first: Option<Instant>,
}

// === impl Tick ===

impl Tick {
    /// Time of a limiter's first event.
    pub(crate) const ZERO: Self = Self(0);
    /// Time that never comes.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(crate) const fn plus(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    pub(crate) const fn minus(self, nanos: u64) -> Self {
        Self(self.0.saturating_sub(nanos))
    }

    /// Rounds up to a multiple of `step`.
    pub(crate) fn round_up(self, step: u64) -> Self {
        Self(self.0.checked_next_multiple_of(step).unwrap_or(self.0))
    }

    /// Nanoseconds since `earlier`.
    pub(crate) const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

// === impl Epoch ===

impl Epoch {
    #[inline]
    pub(crate) fn tick(&mut self, at: Instant) -> Tick {
        let first = *self.first.get_or_insert(at);
        Tick(nanos(at.saturating_duration_since(first)))
    }

    /// Returns the instant of a tick, or `None` for one that no clock reaches.
    pub(crate) fn instant(&self, tick: Tick) -> Option<Instant> {
        self.first?.checked_add(Duration::from_nanos(tick.0))
    }
}

#[inline]
pub(crate) fn nanos(time: Duration) -> u64 {
    // Computed in 64 bits, because `Duration::as_nanos` uses 128.
    let whole = time.as_secs().saturating_mul(SECOND);
    whole.saturating_add(u64::from(time.subsec_nanos()))
}

/// A second in nanoseconds.
const SECOND: u64 = 1_000_000_000;
