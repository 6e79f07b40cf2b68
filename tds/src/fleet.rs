//! `tds fleet status`: the members of a fleet, as its store has them.

use std::{collections::BTreeMap, env};

use clap::{Args, Subcommand};
use tower_tds_fleet::{
    FleetError, StoreFault,
    redis::{Client, RedisError, cmd},
};

use crate::{
    exit::{Exit, Failure},
    output,
};

/// Look at processes that share the limits
#[derive(Debug, Subcommand)]
pub(crate) enum Fleet {
    Status(Status),
}

/// Write a table of the members and their shares
#[derive(Debug, Args)]
pub(crate) struct Status {
    #[arg(
        long,
        value_name = "URL",
        help = "The store: redis://, rediss:// or redis+unix:// [TDS_FLEET_STORE]"
    )]
    store: Option<String>,
    #[arg(
        long,
        value_name = "NAME",
        help = "The name of the fleet [TDS_FLEET_NAME]"
    )]
    name: Option<String>,
}

pub(crate) async fn run(job: Fleet) -> Result<Exit, Failure> {
    let Fleet::Status(status) = job;
    let given = |option: Option<String>, variable: &str, flag: &str| {
        let value = option.or_else(|| env::var(variable).ok());
        value.ok_or_else(|| Failure::usage(format!("give {flag}, or set {variable}")))
    };
    let store = given(status.store, "TDS_FLEET_STORE", "--store")?;
    let name = given(status.name, "TDS_FLEET_NAME", "--name")?;
    let (fields, now) = read(&store, &name).await.map_err(failure)?;
    let table = table(&fields, now);
    output::unless_closed(output::write(table.as_bytes()))
        .map_err(|error| Failure::new(Exit::SomeFailed, error.to_string()))?;
    Ok(Exit::Whole)
}

/// The fleet's hash, and the store's clock in milliseconds.
async fn read(store: &str, name: &str) -> Result<(BTreeMap<String, String>, u64), RedisError> {
    let client = Client::open(store)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut get = cmd("HGETALL");
    get.arg(format!("{{{name}}}:shares"));
    let fields = get.query_async(&mut connection).await?;
    let (seconds, micros): (u64, u64) = cmd("TIME").query_async(&mut connection).await?;
    Ok((fields, seconds * 1_000 + micros / 1_000))
}

fn failure(error: RedisError) -> Failure {
    let error = FleetError::from(error);
    let exit = match error.kind() {
        StoreFault::Credentials | StoreFault::MissingRight => Exit::Credentials,
        StoreFault::Settings | StoreFault::Tls | StoreFault::WrongNode => Exit::Usage,
        _ => Exit::Unreachable,
    };
    Failure::new(exit, error.to_string())
}

/// One line for each member: its record, and the age of its last question.
fn table(fields: &BTreeMap<String, String>, now: u64) -> String {
    let mut table = format!(
        "{:16} {:8} {:>8} {:>6} {:>7} {:>6} {:>9}\n",
        "member", "state", "requests", "places", "sockets", "wants", "asked"
    );
    for (field, value) in fields {
        let Some(id) = field.strip_prefix("member:") else {
            continue;
        };
        let numbers: Vec<u64> = value.split(',').filter_map(|n| n.parse().ok()).collect();
        // number, record, wanted, total, unit, hold, seen, memory, state, since
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
        let age = format!("{}.{} s ago", age / 1_000, age % 1_000 / 100);
        table += &format!(
            "{id:16} {state:8} {requests:>8} {places:>6} {sockets:>7} {wants:>6} {age:>9}\n"
        );
    }
    let began = fields.get("began").and_then(|began| began.parse().ok());
    let known = now.saturating_sub(began.unwrap_or(now));
    table + &format!("the store remembers {} s\n", known / 1_000)
}

/// The life of a share.
const SILENT: u64 = 5_000;
