//! The queue and the limit behind it, under one lock.

use std::{fmt, mem, sync::PoisonError, task::Waker, time::Duration};

use tokio::{runtime::Id, sync::Notify, time::Instant};

use super::{
    Limit, Line, Opens, Over, WaitCause, Waits, clock,
    rows::{Key, Node, Rows},
    sync::{Mutex, MutexGuard},
};

/// Admits what a pure limit allows, in the order of asking.
pub(crate) struct Queue<L> {
    /// Guards the limit and the queue together, so that a grant and its order are one step. Never
    /// held across an `.await`; no waker is woken or dropped under it, and no event is told.
    state: Mutex<State<L>>,
    /// For who waits until nothing is under way.
    idle: Notify,
}

struct State<L> {
    limit: L,
    rows: Rows,
    /// The last that was called and has not looked, and until when it is waited for.
    called: Option<(Key, Instant)>,
    /// How many in a row have not looked in time.
    missed: u32,
    /// When to look next, whatever happens until then.
    look_at: Option<Instant>,
    /// One for each runtime in which somebody has waited lately.
    alarms: Vec<Bell>,
    /// Whether somebody waits until nothing is under way.
    idle_awaited: bool,
    waits: Waits,
}

/// An alarm as the queue sees it.
struct Bell {
    runtime: Id,
    /// When it looks next; `None` while it only waits to be woken.
    armed: Option<Instant>,
    waker: Option<Waker>,
}

/// One who has given up.
pub(super) struct Left {
    /// What it has waited for.
    pub(super) cause: WaitCause,
    /// When the limit opens, if that is known.
    pub(super) opens: Option<Duration>,
}

// === impl Queue ===

impl<L: Limit> Queue<L> {
    pub(crate) fn new(limit: L) -> Self {
        Self {
            state: Mutex::new(State {
                limit,
                rows: Rows::new(),
                called: None,
                missed: 0,
                look_at: None,
                alarms: Vec::new(),
                idle_awaited: false,
                waits: Waits::default(),
            }),
            idle: Notify::new(),
        }
    }

    /// Reads the limit's state.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&mut L) -> T) -> T {
        read(&mut self.lock().limit)
    }

    /// As [`read`](Self::read), with the number of waiters and what was waited for so far.
    pub(crate) fn read_all<T>(&self, read: impl FnOnce(&mut L, usize, &Waits) -> T) -> T {
        let State {
            limit, rows, waits, ..
        } = &mut *self.lock();
        read(limit, rows.len(), waits)
    }

    /// Changes the limit's state, and calls the next waiter if that opens it.
    #[inline]
    pub(crate) fn update<T>(&self, event: impl FnOnce(&mut L) -> T) -> T {
        let mut state = self.lock();
        let told = event(&mut state.limit);
        // Nobody waits as a rule, and then the time is nobody's concern.
        if state.rows.is_empty() && !state.idle_awaited {
            return told;
        }
        let now = clock::now();
        let wakers = state.settle(now);
        let idle = state.idle_awaited && state.limit.is_idle();
        if idle {
            state.idle_awaited = false;
        }
        drop(state);
        wake(wakers);
        if idle {
            self.idle.notify_waiters();
        }
        told
    }

    /// As [`update`](Self::update), for an event that has a time. It is read under the lock, so
    /// that events reach the limit in order.
    #[inline]
    pub(crate) fn update_now<T>(&self, event: impl FnOnce(&mut L, Instant) -> T) -> T {
        self.update(|limit| event(limit, clock::now()))
    }

    /// Passes, or takes a place in the queue and gives it.
    #[inline]
    pub(super) fn pass(
        &self,
        place: &mut Option<Key>,
        line: Line,
        waker: &Waker,
    ) -> Result<L::Grant, Key> {
        let mut state = self.lock();
        let now = clock::now();
        if state.rows.is_empty() && state.limit.opens(line, now) == Opens::Now {
            return Ok(state.limit.admit(now));
        }
        let was_called = place.is_some_and(|key| state.rows.is_called(key));
        if state.called.is_some_and(|(key, ..)| Some(key) == *place) {
            state.called = None;
            state.missed = 0;
        }
        // Nobody was waited for when it was called, perhaps: the next one is.
        if place.is_some_and(|key| state.rows.is_in_time(key, now, PATIENCE)) {
            state.missed = 0;
        }
        let next = was_called
            || match *place {
                Some(key) => state.is_first_of_all(key, now),
                None => state.is_next(line, now),
            };
        if next && state.limit.opens(line, now) == Opens::Now {
            let grant = state.limit.admit(now);
            let waited = place.take().and_then(|key| state.take_out(key, now));
            release(state, now);
            if let Some((_waker, over)) = waited {
                over.passed();
            }
            return Ok(grant);
        }
        let (key, replaced) = match *place {
            Some(key) => {
                if was_called {
                    state.rows.call_off(key, now, PATIENCE);
                }
                (key, state.rows.set_waker(key, waker))
            }
            None => {
                let cause = state.limit.cause(line, now);
                let key = state.rows.push(line, waker.clone(), now, cause);
                release(state, now);
                *place = Some(key);
                return Err(key);
            }
        };
        release(state, now);
        // What a waker drops may look at the queue.
        drop(replaced);
        Err(key)
    }

    /// Gives up a place in the queue, and calls the next one if it was this one's turn.
    pub(super) fn leave(&self, key: Key) -> Left {
        let mut state = self.lock();
        let now = clock::now();
        if state.called.is_some_and(|(called, ..)| called == key) {
            state.called = None;
        }
        let waited = state.take_out(key, now);
        let opens = match state.limit.opens(key.line(), now) {
            Opens::At(at) => Some(at.saturating_duration_since(now)),
            Opens::Now | Opens::OnReturn => None,
        };
        let left = Left {
            cause: state.limit.cause(key.line(), now),
            opens,
        };
        release(state, now);
        if let Some((_waker, over)) = waited {
            over.gone();
        }
        left
    }

    /// Waits until nothing is under way.
    pub(crate) async fn idle(&self) {
        loop {
            // Notified from here on, before anybody is asked.
            let notified = self.idle.notified();
            {
                let mut state = self.lock();
                if state.limit.is_idle() {
                    return;
                }
                state.idle_awaited = true;
            }
            notified.await;
        }
    }

    /// Looks by an alarm, which is woken by `waker` until then. Says when it shall look next, if that is not
    /// only when it is woken.
    pub(super) fn ring(&self, runtime: Id, waker: &Waker) -> Option<Instant> {
        let mut state = self.lock();
        let now = clock::now();
        let wakers = state.settle(now);
        let look_at = state.look_at;
        let bell = state.alarms.iter_mut().find(|bell| bell.runtime == runtime);
        let replaced = bell.and_then(|bell| {
            bell.armed = look_at;
            bell.waker.replace(waker.clone())
        });
        drop(state);
        wake(wakers);
        drop(replaced);
        look_at
    }

    /// Says whether an alarm is wanted for this runtime, and takes it for there.
    pub(super) fn hang_bell(&self, runtime: Id) -> bool {
        let mut state = self.lock();
        let wanted = state.alarms.iter().all(|bell| bell.runtime != runtime);
        if wanted {
            state.alarms.push(Bell {
                runtime,
                armed: None,
                waker: None,
            });
        }
        wanted
    }

    /// A runtime has ended: whoever waits looks again, and takes its alarm to another.
    pub(super) fn take_bell(&self, runtime: Id) {
        let mut state = self.lock();
        let ended = state.alarms.iter().position(|bell| bell.runtime == runtime);
        let ended = ended.map(|at| state.alarms.swap_remove(at));
        let waiting = if state.alarms.is_empty() {
            state.rows.wakers()
        } else {
            Vec::new()
        };
        drop(state);
        wake(waiting);
        drop(ended);
    }

    #[cfg(test)]
    pub(super) fn is_locked(&self) -> bool {
        self.state.try_lock().is_err()
    }
}

impl<L> Queue<L> {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, State<L>> {
        // A panic under this lock can only come from a limit, whose state is plain numbers.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L> Drop for Queue<L> {
    fn drop(&mut self) {
        // The alarms find nothing any more, and end.
        let bells = mem::take(&mut self.lock().alarms);
        for waker in bells.into_iter().filter_map(|bell| bell.waker) {
            waker.wake();
        }
    }
}

impl<L> fmt::Debug for Queue<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

// === impl State ===

impl<L: Limit> State<L> {
    /// Whether one who comes to this line now has nobody before it.
    fn is_next(&self, line: Line, now: Instant) -> bool {
        // The front is before all who wait.
        line == Line::Front || !self.rows.any_up_to(line) && !self.is_awaited(line, now)
    }

    /// Whether one who waits in the queue has nobody before it.
    fn is_first_of_all(&self, key: Key, now: Instant) -> bool {
        self.rows.next() == Some(key) && !self.is_awaited(key.line(), now)
    }

    /// Whether one has just been called who goes before this line, or stands in it.
    fn is_awaited(&self, line: Line, now: Instant) -> bool {
        self.called
            .is_some_and(|(called, until)| called.line() <= line && now < until)
    }

    /// One who waits leaves the queue. Gives what may be dropped and told once the lock is released.
    fn take_out(&mut self, key: Key, now: Instant) -> Option<(Node, Over)> {
        let node = self.rows.remove(key)?;
        let over = self.waits.over(&node, now);
        Some((node, over))
    }

    /// Whoever was called last is waited for no more.
    fn give_up(&mut self) {
        if let Some((key, ..)) = self.called.take() {
            self.rows.is_missed(key);
            self.missed = self.missed.saturating_add(1);
        }
    }

    /// Calls this one, and with it the next ones, up to one that is waited for. Gives until when.
    ///
    /// Those who did not look the last time are not waited for, and the others for half as long after
    /// each that did not look. So a thousand who sleep cost little more than one.
    fn call_some(&mut self, wakers: &mut Vec<Waker>, next: Key, now: Instant) -> Instant {
        let mut next = Some(next);
        for _ in 0..AT_ONCE {
            let Some(key) = next else {
                break;
            };
            let patience = PATIENCE / (1 << self.missed.min(10));
            let (waker, late) = self.rows.call(key, now);
            if !late && patience >= LEAST_PATIENCE {
                let until = now + patience;
                self.called = Some((key, until));
                wakers.extend(waker);
                return until;
            }
            if !late {
                self.rows.is_missed(key);
            }
            wakers.extend(waker);
            let open = |next: &Key| self.limit.opens(next.line(), now) == Opens::Now;
            next = self.rows.next().filter(open);
        }
        now + LEAST_PATIENCE
    }

    /// Calls the next waiter if it may pass, and sets the time of the next look. Gives whom to wake
    /// once the lock is released.
    fn settle(&mut self, now: Instant) -> Vec<Waker> {
        let mut wakers = Vec::new();
        self.look_at = None;
        if let Some(key) = self.rows.next() {
            let line = key.line();
            self.look_at = match self.limit.opens(line, now) {
                Opens::Now if self.is_awaited(line, now) => self.called.map(|(_, until)| until),
                Opens::Now => {
                    self.give_up();
                    let until = self.call_some(&mut wakers, key, now);
                    // If nobody looks, the next one is called.
                    self.rows.next().map(|_| until)
                }
                opens @ (Opens::At(_) | Opens::OnReturn) => {
                    wakers = self.limit.waits(self.rows.len(), now);
                    match opens {
                        Opens::At(at) => {
                            Some(self.limit.changes_at().map_or(at, |may| at.min(may)))
                        }
                        Opens::Now | Opens::OnReturn => None,
                    }
                }
            };
        }
        if self.rows.is_empty() {
            wakers = self.limit.waits(0, now);
        }
        if let Some(at) = self.look_at {
            for bell in &mut self.alarms {
                if bell.armed.is_none_or(|armed| at < armed) {
                    wakers.extend(bell.waker.take());
                }
            }
        }
        wakers
    }
}

/// Calls whoever may pass now, once the lock is released.
fn release<L: Limit>(mut state: MutexGuard<'_, State<L>>, now: Instant) {
    let wakers = state.settle(now);
    drop(state);
    wake(wakers);
}

fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

/// Long against the microseconds in which a task that is woken looks on a machine that keeps up,
/// and a quarter of the even spacing of 50 a second: where it is passed over all the same, two
/// change places.
pub(super) const PATIENCE: Duration = Duration::from_millis(5);

/// What a timer tells apart.
const LEAST_PATIENCE: Duration = Duration::from_millis(1);

/// So many are called together where nobody is waited for.
const AT_ONCE: usize = 16;
