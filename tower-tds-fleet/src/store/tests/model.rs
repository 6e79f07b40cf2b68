//! The division as a model in Rust, written apart from the script.

use std::collections::BTreeMap;

/// Store's hash, and the division.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Division {
    run: String,
    began: u64,
    quotas: String,
    silent: u64,
    paused: u64,
    anew: u64,
    members: BTreeMap<String, Record>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    number: u64,
    record: [u64; 3],
    wanted: [u64; 3],
    total: [u64; 3],
    unit: u64,
    hold: u64,
    seen: u64,
    memory: u64,
    state: State,
    since: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Waits,
    Holds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Late,
    Quotas,
}

// === impl Division ===

impl Division {
    /// The hash of a real store.
    pub(crate) fn from_fields(fields: &[(String, String)]) -> Self {
        let mut division = Self::default();
        for (name, value) in fields {
            let number = || value.parse().unwrap();
            match name.as_str() {
                "run" => division.run.clone_from(value),
                "began" => division.began = number(),
                "quotas" => division.quotas.clone_from(value),
                "silent" => division.silent = number(),
                "paused" => division.paused = number(),
                "anew" => division.anew = number(),
                member => {
                    let id = member.strip_prefix("member:").unwrap().to_owned();
                    let numbers = value.split(',').take(16);
                    let n: Vec<u64> = numbers.map(|n| n.parse().unwrap()).collect();
                    let three = |at: usize| -> [u64; 3] { n[at..at + 3].try_into().unwrap() };
                    let record = Record {
                        number: n[0],
                        record: three(1),
                        wanted: three(4),
                        total: three(7),
                        unit: n[10],
                        hold: n[11],
                        seen: n[12],
                        memory: n[13],
                        state: [State::Idle, State::Waits, State::Holds]
                            [usize::try_from(n[14]).unwrap()],
                        since: n[15],
                    };
                    division.members.insert(id, record);
                }
            }
        }
        division
    }

    pub(crate) fn members(&self) -> usize {
        self.members.len()
    }

    /// Answers one question at `now`, on the server of this run, in the script's numbers.
    pub(crate) fn ask(
        &mut self,
        id: &str,
        number: u64,
        asked: &[u64],
        quotas: &str,
        now: u64,
        (run, last_run): (&str, &str),
    ) -> Result<Vec<u64>, Refused> {
        let three = |at: usize| -> [u64; 3] { asked[at..at + 3].try_into().unwrap() };
        let (claim, have, leaves) = (three(0), three(15), asked[14] == 1);
        let before = self.members.get(id).cloned();
        if before
            .as_ref()
            .is_some_and(|before| number <= before.number)
        {
            return Err(Refused::Late);
        }
        let mut me = Record {
            number,
            record: claim,
            wanted: if leaves { [0; 3] } else { three(3) },
            total: three(6),
            unit: asked[9],
            hold: asked[10],
            seen: now,
            memory: asked[11],
            state: before.as_ref().map_or(State::Idle, |before| before.state),
            since: before.as_ref().map_or(now, |before| before.since),
        };
        let stepped = asked[18] == 1;
        let is_known = self.run == run && (last_run.is_empty() || last_run == run) && !stepped;
        let anew = if stepped { now } else { self.anew };
        let ends = |record: &Record| anew.max(record.seen + ENDS);
        let mut began = if is_known { self.began } else { now };
        let is_live = |record: &Record| now < ends(record);
        let others = || self.members.iter().filter(|(other, _)| *other != id);
        if others().any(|(_, other)| is_live(other)) && self.quotas != quotas {
            return Err(Refused::Quotas);
        }
        // The longest time for which an earlier member still counts.
        let memory = others().map(|(_, other)| other.memory).chain([me.memory]);
        let memory = memory.max().unwrap();
        if before.is_none() && others().count() > 0 && !others().any(|(_, other)| is_live(other)) {
            began = began.max((now + 2_000).saturating_sub(ENDS + memory));
        }
        let grows_at = began + ENDS + memory;

        let live: Vec<_> = others().filter(|(_, other)| is_live(other)).collect();
        let mut total = me.total;
        for (_, other) in &live {
            total = [0, 1, 2].map(|k| total[k].min(other.total[k]));
        }
        let unit = live.iter().map(|(_, other)| other.unit).max();
        let unit = unit.unwrap_or(0).max(me.unit);
        let (mut taken, mut withheld) = ([0; 3], [0; 3]);
        let mut frees = [0, 0];
        for (_, other) in others() {
            let ends = ends(other);
            let [requests, places, _] = other.record;
            // Computes in floating point, as the script does.
            let drains = (places as f64 / requests.max(1) as f64 - 2.0).max(0.0);
            let left = (ends + other.memory) as f64 + drains * other.hold as f64 - now as f64;
            let left = [left, left, (ends + SOCKETS) as f64 - now as f64];
            for k in 0..3 {
                if is_live(other) {
                    taken[k] += other.record[k];
                } else if left[k] > 0.0 && other.record[k] > 0 {
                    withheld[k] += other.record[k];
                    frees[k / 2] = frees[k / 2].max(left[k] as u64);
                }
            }
        }
        let spare = if withheld[1] == 0 { 20 } else { 10 };
        let most = [0, 1, 2].map(|k| total[k] - (total[k] / [10, spare, 10][k]).min(2));
        let divided = [most[0], most[1], most[2].saturating_sub(withheld[2])];
        let taken = [0, 1, 2].map(|k| taken[k] + withheld[k]);

        // It has no share yet, and waits until it has lived for a while.
        let waits = |record: &Record| {
            withheld[1] + withheld[2] > 0 && record.number < NEW && record.record[0] == 0
        };
        let wanted = if waits(&me) { [0; 3] } else { three(3) };
        let is_active = |record: &Record| record.wanted[0] > 0 && !waits(record);
        if !is_active(&me) {
            me.state = State::Idle;
        } else if me.state == State::Idle {
            (me.state, me.since) = (State::Waits, now);
        }
        let mut all: Vec<(&str, &Record)> = vec![(id, &me)];
        all.extend(live.iter().map(|(id, record)| (id.as_str(), *record)));
        let (mut holders, mut idle): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, record)| is_active(record));
        let active = holders.len();
        let turn = |record: &Record| match (record.state, now - record.since) {
            (State::Holds, lasts) if lasts < TURN => 0,
            (State::Holds, lasts) => now + lasts,
            (State::Idle | State::Waits, lasts) if lasts < PATIENCE => 2 * now + record.since,
            (State::Idle | State::Waits, _) => record.since,
        };
        holders.sort_by_key(|(id, record)| (turn(record), (*id).to_owned()));
        let places = (most[0] / unit).min(most[1]).min(divided[2]).max(1);
        let turned = holders.len().min(usize::try_from(places).unwrap());
        idle.extend(holders.drain(turned..));
        idle.retain(|(_, record)| !waits(record));
        let holds = holders.iter().any(|(other, _)| *other == id);
        holders.sort_by_key(|(id, _)| (*id).to_owned());
        idle.sort_by_key(|(id, _)| (*id).to_owned());

        let target = [0, 1, 2].map(|k| {
            let mut left = divided[k];
            let parts = fill(&holders, k, &mut left);
            if holds {
                // Sockets that no member wants stay free.
                let spare = if k == 2 { 0 } else { left };
                parts[id] + spare / u64::try_from(holders.len()).unwrap()
            } else if k == 2 && !leaves {
                fill(&idle, k, &mut left).get(id).copied().unwrap_or(0)
            } else {
                0
            }
        });
        let mut target = target;
        if total[1] < total[0] && claim[1] > target[1] {
            target[0] = target[0].max(claim[0]);
        }
        let (mut share, mut record) = ([0; 3], [0; 3]);
        for k in 0..3 {
            let free = |all: u64| all.saturating_sub(taken[k]);
            let first = free(total[k]).min(if k == 0 { 2 * unit } else { 1 });
            let grows = match (&before, holds && me.state != State::Holds) {
                _ if now < grows_at => 0,
                (None, true) => first,
                (Some(_), true) => first.max(free(most[k])),
                (_, false) => free(most[k]),
            };
            share[k] = target[k].min(have[k].max(grows));
            record[k] = claim[k].max(share[k]);
        }
        let state = if share[0] >= unit && share[1] > 0 && share[2] > 0 {
            State::Holds
        } else if is_active(&me) {
            State::Waits
        } else {
            State::Idle
        };
        if state != me.state {
            (me.state, me.since) = (state, now);
        }
        (me.record, me.wanted) = (record, wanted);
        let live = live.len() + 1;
        let is_steady = before.is_some_and(|before| now < before.seen + ENDS);
        let forgotten = |other: &Record| is_steady && now >= ends(other) + SOCKETS;
        self.members
            .retain(|other, record| other == id || !(forgotten(record)));
        if leaves {
            me.seen = now - ENDS;
        }
        if leaves && record == [0; 3] {
            self.members.remove(id);
        } else {
            self.members.insert(id.to_owned(), me);
        }
        (self.run, self.began, self.quotas) = (run.to_owned(), began, quotas.to_owned());
        self.anew = anew;
        let until = |lasts: u64| if lasts > 0 { now + lasts } else { 0 };
        self.silent = self.silent.max(until(asked[12]));
        self.paused = self.paused.max(until(asked[13]));
        let rest = |until: u64| until.saturating_sub(now);
        let mut answer = vec![now, rest(self.silent), rest(self.paused), rest(grows_at)];
        answer.extend([live, active].map(|count| u64::try_from(count).unwrap()));
        answer.extend(share.into_iter().chain(total).chain(taken).chain(record));
        answer.extend(frees);
        answer.extend(withheld);
        Ok(answer)
    }
}

/// Gives one unit to each member in turn, in the order of the ids, until nothing is left or wanted.
fn fill(list: &[(&str, &Record)], k: usize, left: &mut u64) -> BTreeMap<String, u64> {
    let mut parts: BTreeMap<String, u64> =
        list.iter().map(|(id, _)| ((*id).to_owned(), 0)).collect();
    loop {
        let before = *left;
        for (id, record) in list {
            let part = parts.get_mut(*id).unwrap();
            if *left > 0 && *part < record.wanted[k] {
                *part += 1;
                *left -= 1;
            }
        }
        if *left == before {
            return parts;
        }
    }
}

const ENDS: u64 = 5_000;
const SOCKETS: u64 = 75_000;
const TURN: u64 = 4_000;
const PATIENCE: u64 = 2_200;
const NEW: u64 = 20;
