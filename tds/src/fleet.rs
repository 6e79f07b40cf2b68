//! Fleets: a job joins one by `--fleet`, and `tds fleet status` shows its members.

use std::time::Duration;

use clap::Subcommand;
use tower_tds::Limiter;
use tower_tds_fleet::{FleetError, Record, redis::Client};

use crate::{
    exit::{Exit, Failure, plain},
    output,
    settings::{BASE_URL, FLEET_NAME, FLEET_STORE, Settings},
    wait::patiently,
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
    let records = tower_tds_fleet::Fleet::records(store, name).await;
    output::print(table(&records.map_err(|error| settings.failure(&error))?))?;
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
        let service = self.value(BASE_URL).unwrap_or_default();
        let fleet = tower_tds_fleet::Fleet::join(store, name, service, limiter);
        let fleet = fleet.map_err(|error| self.failure(&error))?;
        // A job joins once, so the cell is still empty.
        drop(self.fleet.set(fleet.clone()));
        let ready = async {
            tokio::select! {
                ready = fleet.ready() => ready.map_err(|error| self.failure(&error)),
                () = self.stop.requested() => Ok(()),
            }
        };
        let store = || "the fleet's store: 17 s if it is new or was emptied".to_owned();
        patiently(ready, store).await
    }

    /// Leaves the fleet, so that the other members can use this share soon.
    pub(crate) async fn leave(&self) {
        if let Some(fleet) = self.fleet.get() {
            fleet.leave().await;
        }
    }

    /// Names the store by its address, where no password is, and what to do about its fault.
    pub(crate) fn failure(&self, error: &FleetError) -> Failure {
        let alone = "; start it or correct --fleet, or go on alone without it";
        let (exit, step) = match error {
            FleetError::Unreachable(_) => (Exit::Unreachable, alone),
            FleetError::ReadOnly(_) => (Exit::Unreachable, "; give the address of the master"),
            FleetError::OutOfMemory(_) => (Exit::Unreachable, "; raise its maxmemory"),
            FleetError::Other(_) => (Exit::Unreachable, ""),
            // All other faults are errors of the configuration.
            FleetError::Credentials(_) => (Exit::Usage, "; correct TDS_FLEET_STORE"),
            _ => (Exit::Usage, ""),
        };
        let store = self.store().ok().flatten();
        let at = store.map(|(store, _)| format!("{}: ", store.get_connection_info().addr()));
        let why = plain(&format!("{}{error}{step}", at.unwrap_or_default()));
        Failure::new(exit, why)
    }
}

/// Formats one line for each member: what it has, and the age of its last question.
fn table(records: &[Record]) -> String {
    let mut table = format!(
        "{:16} {:24} {:>8} {:>7} {:>6} {:>9}\n",
        "member", "process", "requests", "sockets", "wants", "seen"
    );
    for it in records {
        let (requests, sockets) = (it.held.requests, it.held.connections);
        let (id, process, wants, seen) = (&it.id, &it.process, it.wants, it.seen);
        table +=
            &format!("{id:16} {process:24} {requests:>8} {sockets:>7} {wants:>6} {seen:>6.1?} ago");
        if seen > SILENT {
            let free = [it.requests_free_in, it.sockets_free_in];
            let [requests, sockets] = free.map(|free| free.as_secs());
            table += &format!("; silent: requests free in {requests} s, sockets in {sockets} s");
        }
        table += "\n";
    }
    table
}

/// A member gets no share if its last question is older.
const SILENT: Duration = Duration::from_secs(5);
