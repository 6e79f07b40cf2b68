//! The script in Rust, written apart from it, and cut in two: `books` and `settle` are what the theorem is about;
//! what lies between them only decides how much each member should have, and may be wrong.

use std::collections::BTreeMap;

/// A fleet's hash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Division {
    pub(crate) run: u64,
    pub(crate) began: u64,
    pub(crate) anew: u64,
    quotas: u64,
    silent: u64,
    pub(crate) members: BTreeMap<u64, Record>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) record: Three,
    pub(crate) seen: u64,
    memory: u64,
    hold: u64,
    wanted: Three,
    total: Three,
    unit: u64,
    state: u64,
    since: u64,
}

/// Requests, places and sockets.
pub(crate) type Three = [u64; 3];

/// A question, as the script reads it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    pub(crate) id: u64,
    pub(crate) number: u64,
    pub(crate) claim: Three,
    pub(crate) have: Three,
    pub(crate) wanted: Three,
    pub(crate) total: Three,
    pub(crate) unit: u64,
    pub(crate) hold: u64,
    pub(crate) memory: u64,
    pub(crate) silence: u64,
    pub(crate) leaves: bool,
    pub(crate) stepped: bool,
    pub(crate) quotas: u64,
    /// The run of the server that answered last.
    pub(crate) last: Option<u64>,
}

/// What the others have, or may still have.
#[derive(Debug, Default)]
pub(crate) struct Books {
    before: Option<Record>,
    live: Vec<u64>,
    /// Members of whom nothing is left in use.
    over: Vec<u64>,
    pub(crate) taken: Three,
    withheld: Three,
    frees: [u64; 2],
    anew: u64,
    began: u64,
    memory: u64,
    grows_at: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Late,
    Quotas,
}

// === impl Asked ===

impl Asked {
    /// Reads the numbers that the store gets.
    pub(crate) fn of(
        (id, number): (u64, u64),
        numbers: &str,
        quotas: &str,
        last: Option<u64>,
    ) -> Self {
        let n: Vec<u64> = numbers.split(',').map(|n| n.parse().unwrap()).collect();
        let three = |at: usize| -> Three { n[at..at + 3].try_into().unwrap() };
        Self {
            id,
            number,
            claim: [0, 1, 2].map(|k| n[k].max(n[14 + k])),
            wanted: three(3),
            total: three(6),
            unit: n[9],
            hold: n[10],
            memory: n[11],
            silence: n[12],
            leaves: n[13] == 1,
            have: three(14),
            stepped: n[17] == 1,
            quotas: quotas.parse().unwrap(),
            last,
        }
    }
}

// === impl Division ===

impl Division {
    /// The hash of a store that this run has answered for since the beginning of time.
    pub(crate) fn new(run: u64) -> Self {
        Self {
            run,
            ..Self::default()
        }
    }

    /// The hash of a real store.
    pub(crate) fn from_fields(fields: &[(String, String)]) -> Self {
        let mut division = Self::default();
        for (name, value) in fields {
            let number = || value.parse().unwrap();
            match name.as_str() {
                "run" => division.run = run(value),
                "began" => division.began = number(),
                "quotas" => division.quotas = number(),
                "silent" => division.silent = number(),
                "anew" => division.anew = number(),
                member => {
                    let id = member.strip_prefix("member:").unwrap();
                    let numbers = value.split(',').take(16);
                    let n: Vec<u64> = numbers.map(|n| n.parse().unwrap()).collect();
                    let three = |at: usize| -> Three { n[at..at + 3].try_into().unwrap() };
                    let record = Record {
                        number: n[0],
                        record: three(1),
                        wanted: three(4),
                        total: three(7),
                        unit: n[10],
                        hold: n[11],
                        seen: n[12],
                        memory: n[13],
                        state: n[14],
                        since: n[15],
                    };
                    let id = u64::from_str_radix(id, 16).unwrap();
                    division.members.insert(id, record);
                }
            }
        }
        division
    }

    /// Answers one question at `now`, on the server of this run, in the script's numbers.
    pub(crate) fn ask(&mut self, asked: &Asked, run: u64, now: u64) -> Result<Vec<u64>, Refused> {
        let books = self.books(asked, run, now)?;
        let (me, total, target, free) = self.divide(asked, &books, now);
        let share = self.settle(asked, &books, me, (target, free), run, now);
        self.quotas = asked.quotas;
        let silent = if asked.silence > 0 {
            now + asked.silence
        } else {
            0
        };
        self.silent = self.silent.max(silent);
        let rest = |until: u64| until.saturating_sub(now);
        let live = u64::try_from(books.live.len()).unwrap() + 1;
        let mut answer = vec![now, rest(self.silent), rest(books.grows_at), live];
        answer.extend(books.frees);
        answer.extend([share, total, books.withheld].concat());
        Ok(answer)
    }

    /// Reads what the others have, or may still have.
    pub(crate) fn books(&self, asked: &Asked, run: u64, now: u64) -> Result<Books, Refused> {
        let before = self.members.get(&asked.id).cloned();
        if before
            .as_ref()
            .is_some_and(|before| asked.number <= before.number)
        {
            return Err(Refused::Late);
        }
        let is_known =
            self.run == run && asked.last.is_none_or(|last| last == run) && !asked.stepped;
        let anew = if asked.stepped { now } else { self.anew };
        let others: Vec<_> = self
            .members
            .iter()
            .filter(|(id, _)| **id != asked.id)
            .collect();
        let mut books = Books {
            began: if is_known { self.began } else { now },
            memory: others
                .iter()
                .map(|(_, other)| other.memory)
                .fold(asked.memory, u64::max),
            before,
            anew,
            ..Books::default()
        };
        for (id, other) in &others {
            let ends = anew.max(other.seen + ENDS);
            let record = other.record;
            if now < ends {
                books.live.push(**id);
                books.taken = [0, 1, 2].map(|k| books.taken[k] + record[k]);
                continue;
            }
            // Computes in floating point, as the script does.
            let drains =
                (record[1] as f64 / record[0].max(1) as f64 - 2.0).max(0.0) * other.hold as f64;
            let over = (ends + other.memory) as f64 + drains;
            let over = [over, over, (ends + SOCKETS) as f64];
            for k in 0..3 {
                let left = over[k] - now as f64;
                if left > 0.0 && record[k] > 0 {
                    books.withheld[k] += record[k];
                    books.frees[k / 2] = books.frees[k / 2].max(left as u64);
                }
            }
            if over.iter().all(|over| *over <= now as f64) {
                books.over.push(**id);
            }
        }
        books.taken = [0, 1, 2].map(|k| books.taken[k] + books.withheld[k]);
        if !books.live.is_empty() && self.quotas != asked.quotas {
            return Err(Refused::Quotas);
        }
        if books.before.is_none() && books.live.is_empty() && !others.is_empty() {
            books.began = books
                .began
                .max((now + 2_000).saturating_sub(ENDS + books.memory));
        }
        books.grows_at = books.began + ENDS + books.memory;
        Ok(books)
    }

    /// Grants what of `target` the member has, or is free, and records what it may have in use from now on.
    pub(crate) fn settle(
        &mut self,
        asked: &Asked,
        books: &Books,
        mut me: Record,
        (target, free): (Three, Three),
        run: u64,
        now: u64,
    ) -> Three {
        let grows = |k: usize| if now < books.grows_at { 0 } else { free[k] };
        let share = [0, 1, 2].map(|k| target[k].min(asked.have[k].max(grows(k))));
        let record = [0, 1, 2].map(|k| asked.claim[k].max(share[k]));
        // The member may yet report a step of the clock. Until then nothing is forgotten.
        let before = books.before.as_ref();
        if before.is_some_and(|before| now < before.seen + ENDS) {
            self.members.retain(|id, _| !books.over.contains(id));
        }
        let state = match me.wanted[0] > 0 && !asked.leaves {
            _ if share[0] >= me.unit && share[1] > 0 && share[2] > 0 => HOLDS,
            true => WAITS,
            false => IDLE,
        };
        if state != me.state {
            (me.state, me.since) = (state, now);
        }
        me = Record {
            number: asked.number,
            record,
            seen: if asked.leaves { now - ENDS } else { now },
            memory: asked.memory,
            hold: asked.hold,
            unit: asked.unit,
            ..me
        };
        if asked.leaves && record == [0; 3] {
            self.members.remove(&asked.id);
        } else {
            self.members.insert(asked.id, me);
        }
        (self.run, self.began, self.anew) = (run, books.began, books.anew);
        share
    }

    /// What the member should have, and what is free for it.
    fn divide(&self, asked: &Asked, books: &Books, now: u64) -> (Record, Three, Three, Three) {
        let id = asked.id;
        let live: Vec<_> = books
            .live
            .iter()
            .map(|id| (*id, &self.members[id]))
            .collect();
        let least = |k: usize| {
            live.iter()
                .map(|(_, it)| it.total[k])
                .fold(asked.total[k], u64::min)
        };
        let total = [0, 1, 2].map(least);
        let unit = live
            .iter()
            .map(|(_, it)| it.unit)
            .fold(asked.unit, u64::max);
        let withheld = books.withheld;
        let spare = if withheld[1] == 0 { 20 } else { 10 };
        let most = [0, 1, 2].map(|k| total[k] - (total[k] / [10, spare, 10][k]).min(2));
        let divided = [most[0], most[1], most[2].saturating_sub(withheld[2])];
        let before = books.before.as_ref();
        let mut me = Record {
            number: asked.number,
            record: asked.claim,
            wanted: asked.wanted,
            total: asked.total,
            unit,
            state: before.map_or(IDLE, |before| before.state),
            since: before.map_or(now, |before| before.since),
            ..Record::default()
        };
        // It has no share yet, and waits until it has lived for a while.
        let is_early = withheld[1] + withheld[2] > 0;
        let waits = |it: &Record| is_early && it.number < NEW && it.record[0] == 0;
        if waits(&me) {
            me.wanted = [0; 3];
        }
        let is_active = |it: &Record| it.wanted[0] > 0 && !waits(it);
        if !(is_active(&me)) || asked.leaves {
            me.state = IDLE;
        } else if me.state == IDLE {
            (me.state, me.since) = (WAITS, now);
        }
        let mut all = live;
        all.push((id, &me));
        let (mut holders, mut idle): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|(it, record)| is_active(record) && !(asked.leaves && *it == id));
        let turn = |it: &Record| match (it.state, now - it.since) {
            (HOLDS, lasts) if lasts < TURN => 0,
            (HOLDS, lasts) => now + lasts,
            (_, lasts) if lasts < PATIENCE => 2 * now + it.since,
            _ => it.since,
        };
        holders.sort_by_key(|(id, record)| (turn(record), *id));
        let places = (most[0] / unit).min(most[1]).min(divided[2]).max(1);
        let turned = holders.len().min(usize::try_from(places).unwrap());
        idle.extend(holders.drain(turned..));
        idle.retain(|(_, record)| !waits(record));
        let holds = holders.iter().any(|(other, _)| *other == id);
        let mut target = [0, 1, 2].map(|k| {
            let mut left = divided[k];
            let parts = fill(&mut holders, k, &mut left);
            if holds {
                // Sockets that no member wants stay free.
                let spare = if k == 2 { 0 } else { left };
                parts[&id] + spare / u64::try_from(holders.len()).unwrap()
            } else if k == 2 && !asked.leaves {
                fill(&mut idle, k, &mut left).get(&id).copied().unwrap_or(0)
            } else {
                0
            }
        });
        if total[1] < total[0] && asked.claim[1] > target[1] {
            target[0] = target[0].max(asked.claim[0]);
        }
        let is_new = holds && me.state != HOLDS;
        let free = [0, 1, 2].map(|k| {
            let of = |all: u64| all.saturating_sub(books.taken[k]);
            let first = of(total[k]).min(if k == 0 { 2 * unit } else { 1 });
            match (before, is_new) {
                (None, true) => first,
                (Some(_), true) => first.max(of(most[k])),
                (_, false) => of(most[k]),
            }
        });
        (me, total, target, free)
    }
}

/// Number of a server's run.
pub(crate) fn run(text: &str) -> u64 {
    text.bytes().fold(0, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    })
}

/// Gives one unit to each member in turn, in the order of the ids, until nothing is left or wanted.
fn fill(list: &mut [(u64, &Record)], k: usize, left: &mut u64) -> BTreeMap<u64, u64> {
    list.sort_by_key(|(id, _)| *id);
    let mut parts: BTreeMap<u64, u64> = list.iter().map(|(id, _)| (*id, 0)).collect();
    loop {
        let before = *left;
        for (id, record) in list.iter() {
            let part = parts.get_mut(id).unwrap();
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
const IDLE: u64 = 0;
const WAITS: u64 = 1;
const HOLDS: u64 = 2;
