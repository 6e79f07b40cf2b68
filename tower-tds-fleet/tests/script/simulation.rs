//! A fleet under virtual time: processes with the real member, the real script, the service, all hops
//! between them, and their faults.

use std::{collections::BTreeMap, time::Duration};

use fastrand::Rng;
use tokio::time::Instant;

use self::{
    event::What,
    network::{Hop, NETWORKS, Path, exponential},
    process::{Process, TERM},
    service::Service,
};
use crate::{
    member::{Heard, Id},
    store::{self, Store},
};

mod away;
mod event;
mod fairness;
mod faults;
mod link;
mod network;
mod process;
mod proof;
mod service;

/// Everything there is.
struct World {
    now: Duration,
    events: BTreeMap<(Duration, u64), What>,
    number: u64,
    rng: Rng,
    stores: Vec<Store>,
    /// How many servers there have been, and how far the clock of this one is ahead, in microseconds.
    server: u32,
    skew: i64,
    /// Of so many connections to the store one is lost with what is asked or answered; 0: none.
    breaks: u32,
    /// Of so many calls one is never answered, and may be counted whenever A4 allows; 0: none.
    loses: u32,
    /// Whether what a process asks while it is cut off arrives when it is no more.
    late: bool,
    hop: Hop,
    up: Path,
    down: Path,
    service: Service,
    processes: Vec<Process>,
    demand: Option<Demand>,
    /// When something was sent, and when a refusal was heard.
    sends: Vec<Duration>,
    refusals: Vec<Duration>,
}

/// Calls that come in bursts, each to one of the first so many processes.
#[derive(Debug, Clone, Copy)]
struct Demand {
    per_second: f64,
    mean_burst: f64,
    among: usize,
}

// === impl World ===

impl World {
    /// So many processes in which that many calls always wait.
    fn new(seed: u64, processes: usize, backlog: usize) -> Self {
        let base = Instant::now();
        let [_, (_, path), ..] = NETWORKS;
        let mut world = Self {
            now: Duration::ZERO,
            events: BTreeMap::new(),
            number: 0,
            rng: Rng::with_seed(seed),
            stores: vec![Store::new(store::DEFAULT)],
            server: 0,
            skew: 0,
            breaks: 0,
            loses: 0,
            late: false,
            hop: Hop::Of(Duration::from_millis(5)),
            up: path.clone(),
            down: path,
            service: Service::strict(),
            processes: Vec::new(),
            demand: None,
            sends: Vec::new(),
            refusals: Vec::new(),
        };
        for _ in 0..processes {
            world.join(Process::new(base, backlog));
        }
        world
    }

    fn with_terms(mut self, terms: &str) -> Self {
        for store in &mut self.stores {
            store.terms = terms.to_owned();
        }
        self
    }

    fn join(&mut self, process: Process) {
        self.at(self.now, What::Look(self.processes.len()));
        self.processes.push(process);
    }

    fn at(&mut self, at: Duration, what: What) {
        self.number += 1;
        self.events.insert((at.max(self.now), self.number), what);
    }

    fn demand(&mut self, demand: Demand) {
        self.demand = Some(demand);
        self.at(self.now, What::Demand);
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > end {
                break;
            }
            let ((now, _), what) = entry.remove_entry();
            self.now = now;
            self.happen(what);
        }
        self.now = end;
    }

    fn happen(&mut self, what: What) {
        let now = self.now;
        if let Some(who) = what.addressee() {
            let process = &self.processes[who];
            if process.dead {
                return;
            }
            if process.stopped > now {
                // In the same order, when it goes on.
                return self.at(process.stopped, what);
            }
        }
        match what {
            What::Demand => self.burst(),
            What::Look(who) => {
                if self.processes[who].wakes.is_some_and(|at| at <= now) {
                    self.processes[who].wakes = None;
                }
                self.look(who);
            }
            What::Ask(who, connection, asked) => self.ask(who, connection, &asked),
            What::Answer(who, connection, reply) => {
                if self.processes[who].connection == connection {
                    self.answered(who, reply);
                }
            }
            What::Push(who, connection, wait) => {
                if self.processes[who].connection == connection {
                    self.processes[who].told(wait);
                    self.look(who);
                }
            }
            What::Broken(who, connection) => {
                if self.processes[who].connection == connection {
                    let cut = self.processes[who].cut;
                    let again = if cut > now {
                        // It tries that often.
                        cut + Duration::from_secs(3).mul_f64(self.rng.f64())
                    } else {
                        now + Duration::from_millis(55)
                    };
                    self.processes[who].broken(again);
                    self.look(who);
                }
            }
            What::Send(who, id) => self.send(who, id),
            What::Arrive(who, id, answers) => self.arrive(who, id, answers),
            What::Response(who, id, heard) => {
                if heard == Heard::Refused {
                    self.refusals.push(now);
                }
                self.processes[who].responded(now, id, heard);
                self.look(who);
            }
            What::GiveUp(who, id) => {
                self.processes[who].gave_up(now, id);
                self.look(who);
            }
        }
    }

    fn burst(&mut self) {
        let Some(demand) = self.demand else { return };
        let mut calls = 1;
        while self.rng.f64() > 1.0 / demand.mean_burst {
            calls += 1;
        }
        let who = self.rng.usize(..demand.among);
        self.processes[who].demand(self.now, calls);
        self.look(who);
        let mean = demand.mean_burst / demand.per_second;
        let next = Duration::from_secs_f64(mean * exponential(&mut self.rng));
        self.at(self.now + next, What::Demand);
    }

    fn send(&mut self, who: usize, id: Id) {
        let now = self.now;
        self.sends.push(now);
        if self.loses > 0 && self.rng.u32(..self.loses) == 0 {
            self.at(now + ANSWER, What::GiveUp(who, id));
            let counted = (ANSWER + TERM.lost).mul_f64(self.rng.f64());
            return self.at(now + counted, What::Arrive(who, id, false));
        }
        let at = self.up.arrival(now, &mut self.rng);
        self.at(at, What::Arrive(who, id, true));
    }

    fn arrive(&mut self, who: usize, id: Id, answers: bool) {
        let accepted = self.service.arrive(self.now);
        if answers {
            let ready = self.now + self.service.takes(accepted, &mut self.rng);
            let at = self.down.arrival(ready, &mut self.rng);
            let heard = if accepted {
                Heard::Accepted
            } else {
                Heard::Refused
            };
            self.at(at, What::Response(who, id, heard));
        }
    }

    /// Somebody else at the same address sends so many at once.
    fn disturb(&mut self, calls: usize) {
        for _ in 0..calls {
            self.service.arrive(self.now);
        }
    }

    /// Of the limit, what has arrived since then and that number of arrivals.
    fn utilisation(&self, since: Duration, before: u64) -> f64 {
        let arrived = u32::try_from(self.service.arrived - before).expect("few");
        f64::from(arrived) / 50.0 / (self.now - since).as_secs_f64()
    }
}

/// Of one answer of the service.
const ANSWER: Duration = Duration::from_secs(10);
