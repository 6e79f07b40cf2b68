//! Member of a fleet, whose limiter keeps within a share of the limits that a task renews.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chacha20poly1305::aead::Generate as _;
use tokio::{
    runtime::Handle,
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tower_tds_limits::{Limiter, Share, WaitCause};

use crate::{
    error::FleetError,
    member::{Action, Event, LOOK, LimiterState, Member},
    store::{Ask, Constants, FleetStatus, Link, Reply, Store},
};

/// Member of a fleet: one of several processes behind one address that share one set of limits.
///
/// Give your limiter the limits of the whole fleet; all members need the same intervals. Once it
/// joins, it keeps within a share of these limits. A task on the current runtime renews the share,
/// usually one to four times a second, so that no call of a busy member waits for the store.
///
/// Until there is a share, your calls wait. With the default limits that takes 17 s if the store is
/// new or was restarted, because it has no memory of the fleet, and five seconds while permits of
/// killed members are withheld.
///
/// # Cancel safety
/// If you drop the last clone, the member [leaves](Self::leave) in the background, provided that the
/// runtime goes on.
///
/// # Examples
/// ```no_run
/// use tower_tds_fleet::{Fleet, redis};
/// use tower_tds_limits::{Limiter, Limits};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(Limits::default()); // of all members together
/// let redis = redis::Client::open("redis://127.0.0.1/")?;
/// let fleet = Fleet::join(redis, "buses", "https://data.example.org", &limiter)?;
/// fleet.ready().await?;
/// // Layers and clients with this limiter keep within its share.
/// fleet.leave().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Fleet {
    status: watch::Receiver<FleetStatus>,
    leaving: Arc<AtomicBool>,
}

// === impl Fleet ===

impl Fleet {
    /// Joins the fleet of this name, and keeps the limiter within its share from now on.
    ///
    /// The name is 1 to 100 letters, digits, `-`, `_` and `.`; the fleet's key is `{name}:shares`. A
    /// fleet has one `service`, which its URL names by scheme, host and port: if live members call
    /// another one, [`ready`](Self::ready) returns an error.
    ///
    /// # Errors
    /// If the name, the address or the limits cannot be used, or if there is no tokio runtime. An unreachable
    /// store is reported by [`ready`](Self::ready) instead.
    pub fn join(
        store: impl Into<Store>,
        name: &str,
        service: &str,
        limiter: &Limiter,
    ) -> Result<Self, FleetError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 100 || !name.chars().all(is_plain) {
            return Err(FleetError::settings(
                "a fleet's name is 1 to 100 letters, digits, '-', '_' and '.'",
            ));
        }
        let constants = Constants::new(service, limiter)?;
        let id = <[u8; 8]>::try_generate();
        let id = id.map_err(|_| FleetError::settings("the system has no random numbers"))?;
        let id = format!("{:016x}", u64::from_be_bytes(id));
        let unit = constants.unit;
        let link = Link::new(store.into(), name, id, constants);
        Self::join_by(link, unit, limiter)
    }

    pub(crate) fn join_by(
        link: impl Ask,
        unit: u32,
        limiter: &Limiter,
    ) -> Result<Self, FleetError> {
        let runtime = Handle::try_current();
        let runtime = runtime.map_err(|_| FleetError::settings("join inside a tokio runtime"))?;
        let (sender, status) = watch::channel(FleetStatus::default());
        let leaving = Arc::new(AtomicBool::new(false));
        limiter.set_share(Share::default(), Instant::now(), None);
        let driver = Driver {
            member: Member::new(unit),
            limiter: limiter.clone(),
            leaving: Arc::clone(&leaving),
            status: sender,
        };
        drop(runtime.spawn(driver.run(link)));
        Ok(Self { status, leaving })
    }

    /// Waits until the store answers, and its record of the members is complete.
    ///
    /// # Errors
    /// Returns an error at once if your configuration is wrong or the member has left, and after ten
    /// seconds for other faults.
    pub async fn ready(&self) -> Result<(), FleetError> {
        let until = Instant::now() + READY;
        // The member's task ends only after a departure, or with its runtime.
        while self.status.has_changed().is_ok() {
            let now = self.status();
            match now.fault {
                None if now.answered.is_some() && now.grows_in.is_zero() => return Ok(()),
                Some(fault) if fault.is_lasting() || Instant::now() >= until => {
                    return Err(fault);
                }
                Some(_) | None => sleep(LOOK).await,
            }
        }
        Err(FleetError::settings("this member has left the fleet"))
    }

    /// Returns the state that this member last read.
    #[must_use]
    pub fn status(&self) -> FleetStatus {
        self.status.borrow().clone()
    }

    /// Leaves the fleet, and returns when the store has recorded this, or does not answer.
    ///
    /// Call it before your process ends. No further request is sent, and those in flight have five
    /// seconds before their sockets are closed. What the member no longer holds by then is free for
    /// the others at once.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the departure.
    pub async fn leave(&self) {
        // Relaxed: the flag publishes nothing.
        self.leaving.store(true, Ordering::Relaxed);
        let mut status = self.status.clone();
        // The member's task ends when it has left.
        while status.changed().await.is_ok() {}
    }
}

/// Carries events to the member, and its actions to the limiter and the store.
struct Driver {
    member: Member,
    limiter: Limiter,
    leaving: Arc<AtomicBool>,
    status: watch::Sender<FleetStatus>,
}

// === impl Driver ===

impl Driver {
    async fn run<A: Ask>(mut self, link: A) {
        let mut link = Some(link);
        // The question in progress owns the link.
        let mut asking = None;
        loop {
            let now = Instant::now();
            let is_leaving = self.leaving.load(Ordering::Relaxed) || self.status.is_closed();
            let load = self.load();
            if is_leaving && self.member.has_left(load, now) {
                break;
            }
            match self.member.on(Event::Seen(load), now) {
                Action::Apply(share, until) => self.apply(share, until, now),
                Action::Ask(question) => {
                    if let Some(mut link) = link.take() {
                        let asked = async move {
                            let answer = link.ask(question).await;
                            (link, answer)
                        };
                        asking = Some((question.number, Box::pin(asked)));
                    } else {
                        // The previous question still owns the connection.
                        self.member.on(Event::Failed(question.number), now);
                    }
                }
                Action::Wait => {
                    let share = self.member.share(now);
                    self.status.send_modify(|status| {
                        (status.share, status.held, status.waiting) =
                            (share, load.held, load.waiting);
                    });
                    let Some((number, asked)) = &mut asking else {
                        sleep(LOOK).await;
                        continue;
                    };
                    if let Ok((back, answer)) = timeout(LOOK, asked).await {
                        let number = *number;
                        (link, asking) = (Some(back), None);
                        self.answered(number, answer);
                    }
                }
            }
        }
        // A member that was never answered holds nothing. If the store has a record of it all the same, that ends by itself.
        let has_joined = self.status.borrow().answered.is_some();
        if has_joined
            && let Some((_, asked)) = asking
            && let (back, Ok(_)) = asked.await
        {
            link = Some(back);
        }
        self.limiter
            .set_share(Share::default(), Instant::now(), None);
        self.status
            .send_modify(|status| status.share = Share::default());
        if let Some(mut link) = link.filter(|_| has_joined) {
            let question = self.member.leave(self.load(), Instant::now());
            // If no answer comes, the share ends by itself.
            let _answer = link.ask(question).await;
        }
    }

    fn answered(&mut self, number: u64, answer: Result<Reply, FleetError>) {
        let now = Instant::now();
        let event = match &answer {
            Ok(reply) if !self.limiter.load().was_suspended => {
                Event::Answered(number, reply.answer)
            }
            Ok(_) | Err(_) => Event::Failed(number),
        };
        let action = self.member.on(event, now);
        let share = self.member.share(now);
        let fault = answer.as_ref().err();
        let before = self.fault();
        match fault {
            Some(error) if Some(error.texts().0) != before => {
                tracing::warn!(error = %error, "fleet share not renewed")
            }
            None if before.is_some() => tracing::info!("the fleet's store answers again"),
            _ => {}
        }
        #[cfg(feature = "metrics")]
        metrics::counter!("tds_fleet_questions_total", "answered" => if fault.is_none() { "yes" } else { "no" }).increment(1);
        self.status.send_modify(|status| {
            if let Ok(reply) = &answer {
                *status = FleetStatus {
                    held: status.held,
                    waiting: status.waiting,
                    answered: Some(now),
                    ..reply.status.clone()
                };
            }
            status.share = share;
            status.fault = fault.cloned();
            #[cfg(feature = "metrics")]
            status.record();
        });
        if let Action::Apply(share, until) = action {
            self.apply(share, until, now);
        } else if self.member.is_over() {
            // Calls that wait learn the fault.
            self.apply(share, now, now);
        }
    }

    /// Why the last question has failed, if it has.
    fn fault(&self) -> Option<&'static str> {
        let status = self.status.borrow();
        status.fault.as_ref().map(|fault| fault.texts().0)
    }

    /// Applies a share. If more sockets are open and no request is in flight, closes them.
    fn apply(&self, share: Share, until: Instant, now: Instant) {
        let why = self.fault();
        if self.limiter.load().held.connections > share.connections {
            // A share without requests keeps calls from beginning between the look and the close.
            let requests = 0;
            self.limiter
                .set_share(Share { requests, ..share }, until, why);
            if self.limiter.snapshot().in_flight == 0 {
                self.limiter.set_share(Share::default(), now, why);
            }
        }
        self.limiter.set_share(share, until, why);
    }

    /// Reads the state of the limiter.
    fn load(&self) -> LimiterState {
        let snapshot = self.limiter.snapshot();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (waiting, connects) = (count(snapshot.waiting), count(snapshot.connects_waiting));
        let wants_socket = matches!(
            snapshot.waits_for,
            Some(WaitCause::InFlight | WaitCause::Connection)
        );
        let load = self.limiter.load();
        let (mut held, whole) = (load.held, load.whole);
        if whole.places >= whole.requests {
            // If there is no bucket, there are as many places as requests.
            held.places = held.requests;
        }
        LimiterState {
            held,
            in_flight: snapshot.in_flight,
            waiting,
            without_socket: connects.max(if wants_socket { waiting } else { 0 }),
            silence: snapshot
                .silent_for
                .max(snapshot.paused_for)
                .unwrap_or_default(),
            whole,
            suspended: load.was_suspended,
        }
    }
}

/// Longer than a server takes to restart, and shorter than an operator waits.
const READY: Duration = Duration::from_secs(10);
