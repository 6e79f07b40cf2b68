//! The part of the script that the theorem is about, in Rust and written apart from it: what members may have in use, and
//! what one of them may be granted. How much it should have is the script's choice, and any target is safe.

use std::collections::BTreeMap;

/// A fleet's hash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Division {
    pub(crate) run: u64,
    pub(crate) began: u64,
    pub(crate) anew: u64,
    quotas: u64,
    pub(crate) members: BTreeMap<u64, Record>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) record: Three,
    total: Three,
    hold: u64,
    pub(crate) seen: u64,
    memory: u64,
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
    pub(crate) total: Three,
    pub(crate) hold: u64,
    pub(crate) memory: u64,
    pub(crate) leaves: bool,
    pub(crate) stepped: bool,
    pub(crate) quotas: u64,
    /// The run of the server that answered last.
    pub(crate) last: Option<u64>,
}

/// The parts of the others: in use, or perhaps still in use.
#[derive(Debug, Default)]
pub(crate) struct Books {
    is_steady: bool,
    pub(crate) live: u64,
    /// Members of whom nothing is left in use.
    over: Vec<u64>,
    pub(crate) total: Three,
    pub(crate) taken: Three,
    pub(crate) withheld: Three,
    pub(crate) frees: [u64; 2],
    anew: u64,
    began: u64,
    pub(crate) grows_at: u64,
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

    /// Reads the parts of the others, or returns the code of a refusal.
    pub(crate) fn books(&self, asked: &Asked, run: u64, now: u64) -> Result<Books, &'static str> {
        let before = self.members.get(&asked.id);
        if before.is_some_and(|before| asked.number <= before.number) {
            return Err("LATE");
        }
        let is_known =
            self.run == run && asked.last.is_none_or(|last| last == run) && !asked.stepped;
        let others = self.members.iter().filter(|(id, _)| **id != asked.id);
        let mut memory = asked.memory;
        let mut books = Books {
            is_steady: before.is_some_and(|before| now < before.seen + ENDS),
            live: 1,
            total: asked.total,
            anew: if asked.stepped { now } else { self.anew },
            began: if is_known { self.began } else { now },
            ..Books::default()
        };
        for (id, other) in others.clone() {
            let ends = books.anew.max(other.seen + ENDS);
            let record = other.record;
            memory = memory.max(other.memory);
            if now < ends {
                books.live += 1;
                books.taken = [0, 1, 2].map(|k| books.taken[k] + record[k]);
                books.total = [0, 1, 2].map(|k| books.total[k].min(other.total[k]));
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
                books.over.push(*id);
            }
        }
        books.taken = [0, 1, 2].map(|k| books.taken[k] + books.withheld[k]);
        if books.live > 1 && self.quotas != asked.quotas {
            return Err("QUOTAS");
        }
        if before.is_none() && books.live == 1 && others.count() > 0 {
            let soonest = (now + 2_000).saturating_sub(ENDS + memory);
            books.began = books.began.max(soonest);
        }
        books.grows_at = books.began + ENDS + memory;
        Ok(books)
    }

    /// Grants what of `target` the member has, or is free, and records what it may have in use from now on.
    pub(crate) fn settle(
        &mut self,
        asked: &Asked,
        books: &Books,
        target: Three,
        run: u64,
        now: u64,
    ) -> Three {
        let grows = |k: usize| match now < books.grows_at {
            true => 0,
            false => books.total[k].saturating_sub(books.taken[k]),
        };
        let share = [0, 1, 2].map(|k| target[k].min(asked.have[k].max(grows(k))));
        let record = [0, 1, 2].map(|k| asked.claim[k].max(share[k]));
        // The member may yet report a step of the clock. Until then nothing is forgotten.
        if books.is_steady {
            self.members.retain(|id, _| !books.over.contains(id));
        }
        if asked.leaves && record == [0; 3] {
            self.members.remove(&asked.id);
        } else {
            let me = Record {
                number: asked.number,
                record,
                total: asked.total,
                hold: asked.hold,
                seen: if asked.leaves { now - ENDS } else { now },
                memory: asked.memory,
            };
            self.members.insert(asked.id, me);
        }
        (self.run, self.began, self.anew) = (run, books.began, books.anew);
        self.quotas = asked.quotas;
        share
    }
}

const ENDS: u64 = 5_000;
const SOCKETS: u64 = 75_000;
