//! Fleets: a job joins one by `--fleet`, and `tds fleet status` shows its members.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use clap::Subcommand;
use tokio::time::timeout;
use tower_tds::Limiter;
use tower_tds_fleet::{
    FleetError, StoreFault,
    redis::{Client, RedisError, cmd},
};

use crate::{
    exit::{Exit, Failure, plain},
    output,
    settings::{FLEET_NAME, FLEET_STORE, Settings},
};

/// Show the processes that share the limits
#[derive(Debug, Subcommand)]
pub(crate) enum Fleet {
    /// Print a table of the members and their shares
    Status,
}

pub(crate) async fn run(settings: &Settings) -> Result<Exit, Failure> {
    let Some((store, name)) = settings.store()? else {
        return Err(Failure::usage(format!(
            "{FLEET_STORE} is not set; give --fleet"
        )));
    };
    let read = read(&store, name).await;
    let (fields, now) = read.map_err(|error| failure(&error.into()))?;
    output::print(table(&fields, now))?;
    Ok(Exit::Whole)
}

// === impl Settings ===

impl Settings {
    /// Returns the store and the name of the fleet, if one is set. The simulated service has none.
    pub(crate) fn store(&self) -> Result<Option<(Client, &str)>, Failure> {
        let Some(store) = self.find(FLEET_STORE).filter(|_| !self.simulate) else {
            return Ok(None);
        };
        // Leaves the address out of the message, because it may contain a password.
        let client = Client::open(&*store.value).map_err(|_| {
            let forms = "redis://HOST:PORT, rediss://HOST:PORT or redis+unix:///PATH";
            let why = format!("it is not the address of a store: write {forms}");
            self.unusable(FLEET_STORE, &why)
        })?;
        Ok(Some((client, self.value(FLEET_NAME).unwrap_or_default())))
    }

    /// Joins the fleet, if there is one. Waits until the store's record of the members is complete,
    /// or until the job is stopped.
    pub(crate) async fn join(&self, limiter: &Limiter) -> Result<(), Failure> {
        let Some((store, name)) = self.store()? else {
            return Ok(());
        };
        let fleet = tower_tds_fleet::Fleet::join(store, name, limiter);
        let fleet = fleet.map_err(|error| failure(&error))?;
        // A job joins once, so the cell is still empty.
        drop(self.fleet.set(fleet.clone()));
        let mut ready = pin!(fleet.ready());
        if let Ok(ready) = timeout(SOON, &mut ready).await {
            return ready.map_err(|error| failure(&error));
        }
        output::note("waiting for the fleet's store: 17 s if it is new or was emptied");
        tokio::select! {
            ready = ready => ready.map_err(|error| failure(&error)),
            () = self.stop.requested() => Ok(()),
        }
    }

    /// Leaves the fleet, so that the other members can use this share soon.
    pub(crate) async fn leave(&self) {
        if let Some(fleet) = self.fleet.get() {
            fleet.leave().await;
        }
    }
}

/// Reads the fleet's hash, and the store's clock in milliseconds.
async fn read(store: &Client, name: &str) -> Result<(BTreeMap<String, String>, u64), RedisError> {
    let mut connection = store.get_multiplexed_async_connection().await?;
    let mut get = cmd("HGETALL");
    get.arg(format!("{{{name}}}:shares"));
    let fields = get.query_async(&mut connection).await?;
    let (seconds, micros): (u64, u64) = cmd("TIME").query_async(&mut connection).await?;
    let millis = seconds.saturating_mul(1_000);
    Ok((fields, millis.saturating_add(micros / 1_000)))
}

fn failure(error: &FleetError) -> Failure {
    let exit = match error.kind() {
        StoreFault::Unreachable
        | StoreFault::ReadOnly
        | StoreFault::OutOfMemory
        | StoreFault::Other => Exit::Unreachable,
        // All other faults are errors of the configuration.
        _ => Exit::Usage,
    };
    Failure::new(exit, plain(&error.to_string()))
}

/// Formats one line for each member, with its record and the age of its last question.
pub(crate) fn table(fields: &BTreeMap<String, String>, now: u64) -> String {
    let mut table = format!(
        "{:16} {:24} {:8} {:>8} {:>6} {:>7} {:>6} {:>9}\n",
        "member", "process", "state", "requests", "places", "sockets", "wants", "seen"
    );
    let time = |name: &str| fields.get(name).and_then(|time| time.parse().ok());
    // The silence of a member begins at the earliest when the store's clock was last set.
    let anew: u64 = time("anew").unwrap_or_default();
    for (field, value) in fields {
        let Some(id) = field.strip_prefix("member:") else {
            continue;
        };
        let numbers: Vec<u64> = value.split(',').filter_map(|n| n.parse().ok()).collect();
        // number, record, wanted, total, unit, hold, seen, memory, state, since, host and process
        let process = value.split(',').nth(16).unwrap_or_default();
        let process = process.trim_matches('"');
        let number = |at: usize| numbers.get(at).copied().unwrap_or_default();
        let [requests, places, sockets, wants] = [1, 2, 3, 4].map(number);
        let (seen, state) = (number(12), number(14));
        let age = now.saturating_sub(seen);
        let state = match state {
            _ if age > SILENT => "silent",
            0 => "idle",
            1 => "waits",
            _ => "holds",
        };
        let mut age = format!("{}.{} s ago", age / 1_000, age % 1_000 / 100);
        if state == "silent" {
            // The fleet's script computes these times in the same way.
            let silent = seen.saturating_add(SILENT).max(anew);
            let drains = (places / requests.max(1)).saturating_sub(2);
            let drains = drains.saturating_mul(number(11));
            let [requests, sockets] = [number(13).saturating_add(drains), SOCKETS].map(|lasts| {
                let end = silent.saturating_add(lasts);
                end.saturating_sub(now).div_ceil(1_000)
            });
            age += &format!("; requests free in {requests} s, sockets in {sockets} s");
        }
        table += &format!(
            "{id:16} {process:24} {state:8} {requests:>8} {places:>6} {sockets:>7} {wants:>6} {age:>9}\n"
        );
    }
    let known = now.saturating_sub(time("began").unwrap_or(now));
    table + &format!("the store has known this fleet for {} s\n", known / 1_000)
}

/// Milliseconds for which a share is valid without being renewed.
const SILENT: u64 = 5_000;

/// Milliseconds after that for which a server may keep a silent member's sockets open.
const SOCKETS: u64 = 75_000;

/// A store that has a record of the fleet answers within this time.
const SOON: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
