//! Reads the record of each member from the store, for operators.

use std::{collections::BTreeMap, time::Duration};

use redis::{AsyncCommands, RedisResult, cmd};
use tokio::time::timeout;
use tower_tds_limits::Share;

use crate::{
    error::FleetError,
    fleet::Fleet,
    member::ENDS,
    store::{Open, Store, key, millis},
};

/// A member of a fleet, as the store has it on record.
///
/// Use it for a page or an alarm that shows which process has which part of the limits, as `tds fleet
/// status` does.
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
/// use tower_tds_fleet::{Fleet, redis};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = redis::Client::open("redis://127.0.0.1/")?;
/// for member in Fleet::records(redis, "buses").await? {
///     let (process, held) = (&member.process, member.held);
///     println!("{process}: {} requests, {} sockets", held.requests, held.connections);
///     if member.seen > Duration::from_secs(5) {
///         println!("  silent; its sockets are free in {:?}", member.sockets_free_in);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// Random, in hexadecimal digits.
    pub id: String,
    /// Its host and the number of its process.
    pub process: String,
    /// Part of the limits that it may have in use.
    pub held: Share,
    /// Requests of the first quota that it could use.
    pub wants: u32,
    /// Time since its last question. After five seconds it is silent, and gets nothing.
    pub seen: Duration,
    /// How long the requests of a silent member are withheld from the others.
    pub requests_free_in: Duration,
    /// How long the sockets of a silent member are withheld from the others.
    pub sockets_free_in: Duration,
}

impl Fleet {
    /// Reads the members of a fleet from the store, by their ids. You need not have joined it.
    ///
    /// # Errors
    /// If the store cannot be reached, or refuses the user.
    pub async fn records(store: impl Into<Store>, name: &str) -> Result<Vec<Record>, FleetError> {
        let mut store = store.into();
        let read = timeout(ENDS, read(&mut store, name)).await;
        let (fields, now) = read.map_err(|_| FleetError::unanswered())??;
        // After a step of the store's clock, silent members are counted anew.
        let anew = fields.get("anew").and_then(|anew| anew.parse().ok());
        let anew = anew.unwrap_or_default();
        let members = fields.iter();
        let members =
            members.filter_map(|(name, value)| Some((name.strip_prefix("member:")?, value)));
        Ok(members
            .filter_map(|(id, value)| Record::of(id, value, now, anew))
            .collect())
    }
}

// === impl Record ===

impl Record {
    /// Reads a field of the hash, whose format stands in the script that writes it.
    fn of(id: &str, value: &str, now: u64, anew: u64) -> Option<Self> {
        let values: Vec<_> = value.split(',').collect();
        let number = |at: usize| values.get(at)?.parse::<u64>().ok();
        let count = |at: usize| u32::try_from(number(at)?).ok();
        let [requests, places, connections] = [count(1)?, count(2)?, count(3)?];
        let (hold, seen, memory) = (number(11)?, number(12)?, number(13)?);
        let ends = seen.saturating_add(millis(ENDS)).max(anew);
        let drains = u64::from((places / requests.max(1)).saturating_sub(2)).saturating_mul(hold);
        let withheld = |lasts: u64| match ends <= now {
            true => Duration::from_millis(ends.saturating_add(lasts).saturating_sub(now)),
            false => Duration::ZERO,
        };
        Some(Self {
            id: id.to_owned(),
            process: values
                .get(16)
                .map_or("", |it| it.trim_matches('"'))
                .to_owned(),
            held: Share {
                requests,
                places,
                connections,
            },
            wants: count(4)?,
            seen: Duration::from_millis(now.saturating_sub(seen)),
            requests_free_in: withheld(memory.saturating_add(drains)),
            sockets_free_in: withheld(SOCKETS),
        })
    }
}

/// Reads the fleet's hash, and the store's clock in milliseconds.
async fn read(store: &mut Store, name: &str) -> RedisResult<(BTreeMap<String, String>, u64)> {
    match store.open().await? {
        Open::One(connection) => read_by(connection, name).await,
        Open::Cluster(connection) => read_by(connection, name).await,
    }
}

async fn read_by(
    mut store: impl AsyncCommands,
    name: &str,
) -> RedisResult<(BTreeMap<String, String>, u64)> {
    let fields = store.hgetall(key(name)).await?;
    let (seconds, micros): (u64, u64) = cmd("TIME").query_async(&mut store).await?;
    let now = seconds.saturating_mul(1_000).saturating_add(micros / 1_000);
    Ok((fields, now))
}

/// Longest time for which a server keeps the sockets of a silent member open, as the script has it.
const SOCKETS: u64 = 75_000;

#[cfg(test)]
mod tests;
