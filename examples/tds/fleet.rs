//! Several processes behind one address: one quota and one token, by leases in a store that all of them reach.

use std::{num::NonZeroU32, time::Duration};

use clap::Args;
use metrics::gauge;
use serde::Serialize;
use tds_examples::{causes, warn};
use tokio::time::{sleep, timeout};
use tower_tds::{Builder, Limits, SharedLimits};
use tower_tds_fleet::{Fleet, FleetStatus, RedisTokens, redis};
use tower_tds_limits::{AskLease, Ended, Leases};

use crate::exit::Failure;

/// The options of processes that share what one address may do.
#[derive(Debug, Args)]
#[command(next_help_heading = "Several processes")]
pub(crate) struct FleetOptions {
    #[arg(
        long = "fleet",
        value_name = "URL",
        help = "Share quota and token with all processes that name this store, Redis or Valkey: \
                redis://host:6379 [default: TDS_FLEET, where a password belongs]"
    )]
    url: Option<String>,
    /// The same for all processes at one service and behind one address
    #[arg(long = "fleet-name", value_name = "NAME", default_value = "tds")]
    name: String,
    #[arg(
        long,
        value_name = "N",
        default_value = "4",
        value_parser = clap::value_parser!(u32).range(1..=30),
        help = "How many processes there are at most, with --fleet: each has that part of the 60 \
                sockets of an address"
    )]
    processes: u32,
}

/// This process' place in a fleet, or none: then it has nothing to say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Membership(Option<Member>);

#[derive(Debug, Clone)]
struct Member {
    fleet: Fleet,
    store: redis::Client,
    name: String,
    limits: Limits,
    told: Told,
}

/// What was said last of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Here,
    Away,
    Forgetful,
}

/// What `/healthz` shows.
#[derive(Debug, Serialize)]
pub(crate) struct Health {
    ready: bool,
    waits_for: Option<String>,
    waiting: usize,
    leases: usize,
    /// Of all processes together.
    leases_live: u64,
}

// === impl FleetOptions ===

impl FleetOptions {
    /// Joins the fleet at the store that is named here, or else by the settings, which need not be there. What
    /// is simulated has another name: it takes nothing from the quota of a real service.
    pub(crate) fn join(&self, store: Option<String>, suffix: &str) -> Result<Membership, Failure> {
        let Some(url) = self.url.clone().or(store) else {
            return Ok(Membership::default());
        };
        let unusable = |why: String| Failure::usage(format!("--fleet or TDS_FLEET: {why}"));
        let name = format!("{}{suffix}", self.name);
        let all = Limits::default();
        let part = all.connections.get().checked_div(self.processes);
        let part = part.and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
        let limits = all.connections(part);
        let fleet = Fleet::join(&url, &name, &limits).map_err(|error| unusable(causes(&error)))?;
        let store = redis::Client::open(url).map_err(|error| unusable(causes(&error)))?;
        let known = store.get_connection_info().redis_settings();
        if self.url.is_some() && known.password().is_some() {
            return Err(Failure::usage(
                "--fleet has a password, which every user of the machine can read there: set TDS_FLEET, or name it in \
                 the file of --env-file",
            ));
        }
        Ok(Membership(Some(Member {
            fleet,
            store,
            name,
            limits,
            told: Told::Here,
        })))
    }
}

// === impl Membership ===

impl Membership {
    pub(crate) const fn is_member(&self) -> bool {
        self.0.is_some()
    }

    /// The client keeps the fleet's quota, and its token lies in the store, sealed with this secret.
    pub(crate) fn share(&self, builder: Builder, secret: &str) -> Builder {
        let Some(member) = &self.0 else {
            return builder.limits(Limits::default().drained());
        };
        let tokens = RedisTokens::new(member.store.clone(), &*member.name, secret);
        builder
            .limits(SharedLimits::leased(
                member.limits.clone(),
                member.fleet.clone(),
            ))
            .tokens(|builder| builder.store(tokens))
    }

    /// Looks whether the store is there, says what is wrong with it, and waits until one without memory
    /// grants. One that is away is not waited for: calls do that, by their deadlines.
    ///
    /// # Errors
    /// The store refuses the password: no call will ever be sent.
    pub(crate) async fn opened(&mut self) -> Result<(), Failure> {
        loop {
            let Some(member) = &self.0 else { return Ok(()) };
            member.ask().await;
            let status = member.fleet.status();
            if status.away.is_some()
                && let Some(why) = member.refused().await
            {
                let why = format!("--fleet or TDS_FLEET: the store refuses the password: {why}");
                return Err(Failure::usage(why));
            }
            self.tell(warn);
            if status.opens_in.is_zero() || status.away.is_some() {
                return Ok(());
            }
            // Not for all of it: another member may know more.
            sleep(status.opens_in.min(LOOK)).await;
        }
    }

    /// Says what becomes of the store, for as long as the program runs.
    pub(crate) fn watch(mut self) {
        if self.is_member() {
            tokio::spawn(async move {
                loop {
                    sleep(TICK).await;
                    if let Some(member) = &self.0 {
                        member.look().await;
                    }
                    self.tell(warn);
                }
            });
        }
    }

    /// For the end: leases that the store is not told of would be kept from the others for 21 s.
    pub(crate) async fn leave(&self) {
        if let Some(member) = &self.0 {
            drop(timeout(LEAVING, member.fleet.leave()).await);
        }
    }

    /// Says what has become of the store since this was last asked.
    pub(crate) fn tell(&mut self, say: impl Fn(&str)) {
        let Some(member) = &mut self.0 else { return };
        let status = member.fleet.status();
        let now = Told::of(&status);
        let before = std::mem::replace(&mut member.told, now);
        if before == now {
            return;
        }
        match trouble(&status) {
            Some(trouble) => say(&format!("tds: {trouble}")),
            None if before == Told::Away => say("tds: the fleet's store is back"),
            None => {}
        }
    }

    /// What the fleet's calls wait for, if they do.
    pub(crate) fn waits_for(&self) -> Option<String> {
        waits_for(&self.0.as_ref()?.fleet.status())
    }

    /// For how long this client's pause lasts at least, if it pauses: whoever tries waits for the fleet's, too.
    pub(crate) fn paused_for(&self, own: Option<Duration>) -> Option<Duration> {
        let all = self
            .0
            .as_ref()
            .map(|member| member.fleet.status().paused_for);
        own.map(|own| own.max(all.unwrap_or_default()))
    }

    /// An error's line, and the store's part in it: who looked at the clock knows only that it was late.
    pub(crate) fn explain(&self, line: String) -> String {
        let status = self.0.as_ref().map(|member| member.fleet.status());
        match status.as_ref().and_then(trouble) {
            None => line,
            Some(trouble) => format!("{line}; {trouble}"),
        }
    }

    /// Records what the fleet waits for, beside what the client records.
    pub(crate) fn record(&self) {
        let Some(member) = &self.0 else { return };
        let status = member.fleet.status();
        let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        gauge!("tds_fleet_away").set(f64::from(u8::from(status.away.is_some())));
        gauge!("tds_fleet_waiting").set(count(status.waiting));
        gauge!("tds_fleet_leases").set(count(status.held));
        gauge!("tds_fleet_opens_seconds").set(status.opens_in.as_secs_f64());
    }

    pub(crate) fn health(&self) -> Option<Health> {
        let status = self.0.as_ref()?.fleet.status();
        Some(Health {
            ready: Told::of(&status) == Told::Here,
            waits_for: waits_for(&status),
            waiting: status.waiting,
            leases: status.held,
            leases_live: status.live,
        })
    }
}

// === impl Member ===

impl Member {
    /// Asks for a lease and gives it back, which is how the store is heard of.
    async fn ask(&self) {
        let mut ask = AskLease::default();
        ask.max_wait = Some(Duration::ZERO);
        if let Ok(lease) = self.fleet.lease(ask).await {
            lease.end(Ended::Unsent);
        }
    }

    /// Why the store lets nobody in with these credentials, if that is what it says.
    async fn refused(&self) -> Option<redis::RedisError> {
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(LOOK))
            .set_response_timeout(Some(LOOK));
        let store = self
            .store
            .get_multiplexed_async_connection_with_config(&config);
        let asked: redis::RedisResult<()> = match store.await {
            Ok(mut store) => redis::cmd("PING").exec_async(&mut store).await,
            Err(error) => Err(error),
        };
        asked.err().filter(|error| {
            error.kind() == redis::ErrorKind::AuthenticationFailed
                || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
        })
    }

    /// The same where nobody asks otherwise, and what was heard may be over.
    async fn look(&self) {
        let status = self.fleet.status();
        if status.waiting == 0 && Told::of(&status) != Told::Here {
            self.ask().await;
        }
    }
}

// === impl Told ===

impl Told {
    fn of(status: &FleetStatus) -> Self {
        if status.away.is_some() {
            Self::Away
        } else if status.opens_in.is_zero() {
            Self::Here
        } else {
            Self::Forgetful
        }
    }
}

// === impl Health ===

impl Health {
    pub(crate) const fn is_ready(&self) -> bool {
        self.ready
    }
}

/// What is wrong with the store, if anything is.
fn trouble(status: &FleetStatus) -> Option<String> {
    match (Told::of(status), &status.away) {
        (Told::Here, _) => None,
        (_, Some(why)) => Some(format!(
            "the fleet's store is away: {why}; nothing is sent until it is back"
        )),
        (_, None) => Some(format!(
            "the fleet's store has no memory of this quota: nothing is sent for {} s, until whatever was \
             sent before is over",
            seconds(status.opens_in)
        )),
    }
}

fn waits_for(status: &FleetStatus) -> Option<String> {
    if let Some(why) = &status.away {
        return Some(format!("the fleet's store, which is away: {why}"));
    }
    let wait = if !status.opens_in.is_zero() {
        let left = seconds(status.opens_in);
        format!("the end of whatever was sent before the fleet's store came, {left} s")
    } else if status.waiting == 0 {
        return None;
    } else if !status.paused_for.is_zero() {
        let left = seconds(status.paused_for);
        format!("the end of the fleet's pause after a 429, {left} s")
    } else {
        "a lease of the fleet's quota".to_owned()
    };
    Some(wait)
}

fn seconds(time: Duration) -> u64 {
    time.as_secs()
        .saturating_add(u64::from(time.subsec_nanos() > 0))
}

/// How often a store that grants nothing yet is asked.
const LOOK: Duration = Duration::from_secs(1);

/// How soon it is said that the store is away.
const TICK: Duration = Duration::from_millis(500);

/// Some words with a store that is far away.
const LEAVING: Duration = Duration::from_secs(1);
