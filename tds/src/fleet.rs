//! Fleets: a job joins one by `--fleet`.

use std::{pin::pin, time::Duration};

use tokio::time::timeout;
use tower_tds::Limiter;
use tower_tds_fleet::{Fleet, FleetError, StoreFault, redis::Client};

use crate::{
    exit::{Exit, Failure},
    output,
    settings::{FLEET_NAME, FLEET_STORE, Settings, Source},
};

// === impl Settings ===

impl Settings {
    /// The store of the fleet, and the fleet's name. The simulated service has no fleet.
    pub(crate) fn store(&self) -> Result<Option<(Client, &str)>, Failure> {
        let Some(store) = self.find(FLEET_STORE).filter(|_| !self.simulate) else {
            return Ok(None);
        };
        if store.source == Source::Flag && store.value.contains('@') {
            return Err(Failure::usage(format!(
                "--fleet: every user of this machine can read a password in it; set {FLEET_STORE}"
            )));
        }
        // The address is in no message, because it may contain a password.
        let client = Client::open(&*store.value).map_err(|_| {
            let forms = "redis://HOST:PORT, rediss://HOST:PORT or redis+unix:///PATH";
            Failure::usage(format!(
                "{FLEET_STORE} is no address of a store: write {forms}"
            ))
        })?;
        Ok(Some((client, self.value(FLEET_NAME).unwrap_or_default())))
    }

    /// Joins the fleet, if there is one, and waits until its store knows what the members have, or
    /// for a stop.
    pub(crate) async fn join(&self, limiter: &Limiter) -> Result<(), Failure> {
        let Some((store, name)) = self.store()? else {
            return Ok(());
        };
        let fleet = Fleet::join(store, name, limiter);
        let fleet = fleet.map_err(|error| failure(&error))?;
        // A job joins once.
        drop(self.fleet.set(fleet.clone()));
        let mut ready = pin!(fleet.ready());
        if let Ok(ready) = timeout(SOON, &mut ready).await {
            return ready.map_err(|error| failure(&error));
        }
        output::note("waiting for the fleet's store: 17 s if it is new or was emptied");
        tokio::select! {
            ready = ready => ready.map_err(|error| failure(&error)),
            () = self.stop.asked() => Ok(()),
        }
    }

    /// Leaves the fleet, so that its other members have the share at once.
    pub(crate) async fn leave(&self) {
        if let Some(fleet) = self.fleet.get() {
            fleet.leave().await;
        }
    }
}

fn failure(error: &FleetError) -> Failure {
    let exit = match error.kind() {
        StoreFault::Unreachable
        | StoreFault::ReadOnly
        | StoreFault::OutOfMemory
        | StoreFault::Other => Exit::Unreachable,
        // An operator has to act.
        _ => Exit::Usage,
    };
    Failure::new(exit, error.to_string())
}

/// Longer than the answers of a store that is there and remembers.
const SOON: Duration = Duration::from_secs(2);
