//! The script in the store, in Rust's types.

use std::{num::NonZeroU32, time::Duration};

use redis::{RedisResult, Script, aio::MultiplexedConnection};
use tower_tds_limits::{Burst, Limits, Quota, Rung};

use crate::{
    error::FleetError,
    member::{Ask, Event, Heard, Reply, Share},
};

/// One fleet's account in the store.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    script: Script,
    key: String,
    terms: String,
    keep: Duration,
    member: String,
    /// What those of all members begin with.
    channels: String,
}

/// How the account stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Standing {
    /// Until the end of the pause after a 429.
    pub(crate) paused: Duration,
    pub(crate) live: u64,
    pub(crate) rung: u8,
    /// Until a store that has lost its memory grants again.
    pub(crate) opens: Duration,
}

// === impl Account ===

impl Account {
    pub(crate) fn new(
        name: &str,
        member: String,
        limits: &Limits,
        keep: Duration,
    ) -> Result<Self, FleetError> {
        Ok(Self {
            script: Script::new(include_str!("lease.lua")),
            key: format!("{{{name}}}:quota"),
            terms: terms(limits, keep)?,
            keep,
            channels: format!("{{{name}}}:"),
            member,
        })
    }

    /// What of these limits a member keeps without the store.
    pub(crate) fn share(
        &self,
        requests: NonZeroU32,
        limits: &Limits,
        keep: Duration,
    ) -> Result<Share, FleetError> {
        let quota = limits
            .quotas()
            .first()
            .filter(|quota| requests.get() <= quota.requests().get() / 2);
        let quota = *quota.ok_or_else(FleetError::share)?;
        Ok(Share::new(
            requests,
            quota.hold(),
            recovery(quota, keep, limits.longest_lost()),
        ))
    }

    /// Where this member is told to ask.
    pub(crate) fn channel(&self) -> String {
        format!("{}{}", self.channels, self.member)
    }

    pub(crate) async fn ask(
        &self,
        connection: &mut MultiplexedConnection,
        ask: &Ask,
    ) -> RedisResult<(Reply, Standing)> {
        let mut call = self.script.prepare_invoke();
        call.key(&self.key).arg(&self.terms).arg(micros(self.keep));
        call.arg(&self.member)
            .arg(&self.channels)
            .arg(ask.want)
            .arg(ask.share)
            .arg(ask.number)
            .arg(ask.answered)
            .arg(ask.server);
        for event in &ask.events {
            match *event {
                Event::Proven(id, heard) => {
                    let (word, hint) = match heard {
                        Heard::Accepted => ("a", Duration::ZERO),
                        Heard::Refused => ("r", Duration::ZERO),
                        Heard::QuotaExceeded(hint) => ("q", hint.unwrap_or_default()),
                        Heard::Nothing => ("n", Duration::ZERO),
                    };
                    call.arg("p").arg(id).arg(word).arg(micros(hint))
                }
                Event::Within(id, within) => call.arg("l").arg(id).arg(micros(within)),
                Event::Unsent(id) => call.arg("u").arg(id),
            };
        }
        for id in &ask.kept {
            call.arg("k").arg(*id);
        }
        let reply: Vec<i64> = call.invoke_async(connection).await?;
        read(&reply).ok_or_else(|| {
            let what = (
                redis::ErrorKind::UnexpectedReturnType,
                "not the reply of this script",
            );
            redis::RedisError::from(what)
        })
    }
}

fn read(reply: &[i64]) -> Option<(Reply, Standing)> {
    let [
        count,
        first,
        wait,
        paused,
        live,
        rung,
        opens,
        agreed,
        server,
        unknown @ ..,
    ] = reply
    else {
        return None;
    };
    let span = |micros: i64| u64::try_from(micros).ok().map(Duration::from_micros);
    let reply = Reply {
        granted: (*first..).take(usize::try_from(*count).ok()?).collect(),
        wait: span(*wait),
        paused: span(*paused)?,
        agreed: *agreed == 1,
        server: *server,
        unknown: unknown.to_vec(),
    };
    let standing = Standing {
        paused: span(*paused)?,
        live: u64::try_from(*live).ok()?,
        rung: u8::try_from(*rung).ok()?,
        opens: span(*opens)?,
    };
    Some((reply, standing))
}

/// The limits as the script reads them, and compares those of all members.
fn terms(limits: &Limits, keep: Duration) -> Result<String, FleetError> {
    let [quota] = limits.quotas() else {
        return Err(FleetError::quotas());
    };
    let rules = limits.rules;
    let most = quota.requests();
    let (hold, space) = (micros(quota.hold()), micros(quota.spacing()));
    let even = micros(quota.per().checked_div(most.get()).unwrap_or_default());
    let counter = u8::from(rules.counter);
    let burst = match rules.bucket {
        None => -1,
        Some(Burst::Of(burst)) => i64::from(burst),
        Some(_) => -2,
    };
    let pace = rules.pace.map_or(0, NonZeroU32::get);
    let rung = match limits.start {
        Rung::Proven => 0,
        Rung::Strict => 1,
        Rung::Serial => 2,
        Rung::Slowed(times) => u32::from(times.min(16)).saturating_add(2),
        _ => 1,
    };
    let recover = micros(recovery(*quota, keep, limits.longest_lost()));
    Ok(format!(
        "{VERSION} {most} {hold} {even} {space} {counter} {burst} {pace} {rung} {recover}"
    ))
}

/// After so long nothing that another memory of the store has granted can be counted any more.
pub(crate) fn recovery(quota: Quota, keep: Duration, lost: Duration) -> Duration {
    keep.saturating_add(lost).saturating_add(quota.hold())
}

/// Of what the script keeps: another one cannot read it.
const VERSION: u32 = 4;

fn micros(span: Duration) -> u64 {
    // What a script's numbers hold exactly.
    const MOST: u64 = 1 << 52;
    // Rounded up: a lease that is longer is a safe one.
    let micros = span.as_nanos().div_ceil(1_000);
    u64::try_from(micros).unwrap_or(MOST).min(MOST)
}
