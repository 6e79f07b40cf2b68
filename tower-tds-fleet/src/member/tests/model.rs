//! All interleavings of three members and a store: the theorem of DESIGN.md, by an exhaustive search.
//!
//! The members are the real ones, and the store is the script's twin without its division: whatever a member should
//! have, the search tries none, one and all. Questions and answers are lost, late, or overtaken; members use all
//! that they may at each second, are killed, stopped and continued; the store is emptied, fails over to a copy and
//! back, and its clock is set forward.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    rc::Rc,
    time::Duration,
};

use tokio::time::Instant;
use tower_tds_limits::Share;

use crate::{
    member::{Action, Answer, Event, LimiterState, Member},
    store::tests::twin::{Asked, Division, Record},
};

/// A fleet at one time. Times are seconds.
#[derive(Clone)]
struct State {
    now: u64,
    members: [Process; 3],
    /// Run of the master, and its hash: now, and at the beginning of this second.
    run: u64,
    hash: Rc<Division>,
    earlier: Rc<Division>,
    /// Requests of killed members, and until when they may count.
    ghosts: Vec<(u32, u64)>,
    /// Names that were given to members and servers.
    names: u64,
    /// By how much the store's clock is ahead, and when it was set forward.
    ahead: u64,
    stepped: Option<u64>,
    /// Faults that may still happen.
    faults: u8,
}

#[derive(Clone)]
struct Process {
    id: u64,
    member: Member,
    /// Requests that still count, and until when.
    used: (u32, u64),
    is_stopped: bool,
    /// Whether all its questions are lost.
    is_cut: bool,
    /// Question that has not reached the store, and when it was sent.
    question: Option<(Asked, u64)>,
    /// Reply that has not reached the member, with the run of its server, and when it was sent.
    reply: Option<(u64, Answer, u64, u64)>,
    /// Run of the server that answered last, and when.
    run: Option<(u64, u64)>,
}

/// States that may follow, each with what happens before it, and to which member.
#[derive(Default)]
struct Next(Vec<(&'static str, usize, State)>);

/// Requests to share, and how long each counts: as long as the store withholds those of silent members.
const TOTAL: u32 = 2;
const COUNTS: u64 = 2;

fn requests(requests: u32) -> Share {
    Share {
        requests,
        ..Share::default()
    }
}

// === impl Next ===

impl Next {
    fn add(&mut self, what: &'static str, at: usize, now: &State, change: impl FnOnce(&mut State)) {
        let mut next = now.clone();
        change(&mut next);
        self.0.push((what, at, next));
    }

    /// Adds what follows a fault, if one may still happen.
    fn fault(
        &mut self,
        what: &'static str,
        at: usize,
        now: &State,
        change: impl FnOnce(&mut State),
    ) {
        if now.faults > 0 {
            self.add(what, at, now, |next| {
                next.faults -= 1;
                change(next);
            });
        }
    }
}

// === impl State ===

impl State {
    fn new(faults: u8) -> Self {
        Self {
            now: 0,
            members: [0, 1, 2].map(Process::new),
            run: 0,
            hash: Rc::new(Division::new(0)),
            earlier: Rc::new(Division::new(0)),
            ghosts: Vec::new(),
            names: 3,
            ahead: 0,
            stepped: None,
            faults,
        }
    }

    fn instant(&self, begin: Instant) -> Instant {
        begin + Duration::from_secs(self.now)
    }

    /// Milliseconds on the store's clock.
    fn clock(&self) -> u64 {
        (BEGIN + self.ahead + self.now) * 1_000
    }

    /// Returns the most that may count at this time.
    fn sum(&self, now: Instant) -> u32 {
        let of = |it: &Process| it.member.share(now).requests.max(it.in_use(self.now));
        let members = self.members.iter().map(of).sum::<u32>();
        let ghosts = self.ghosts.iter().filter(|(_, until)| self.now < *until);
        members + ghosts.map(|(amount, _)| amount).sum::<u32>()
    }

    /// Each state that one event leads to. In each second, each running member sends one question,
    /// in any order. A lost question stands for one that was never sent.
    fn next(&self, begin: Instant) -> Next {
        let now = self.instant(begin);
        let mut all = Next::default();
        let mut have_asked = true;
        self.faults(&mut all);
        for (at, process) in self.members.iter().enumerate() {
            if let Some((asked, _)) = process.question {
                self.answers(at, &asked, now, &mut all);
            }
            if process.is_stopped {
                all.add("goes on", at, self, |next| {
                    next.members[at].is_stopped = false
                });
                continue;
            }
            if process.is_cut {
                all.add("is back", at, self, |next| next.members[at].is_cut = false);
            }
            if process.reply.is_some() {
                all.add("reads", at, self, |next| {
                    next.members[at].read(self.now, now)
                });
            }
            // All its calls may have ended.
            let is_idle = [false, true].into_iter();
            for is_idle in is_idle.filter(|is_idle| !is_idle || process.in_use(self.now) > 0) {
                let mut asking = self.clone();
                if is_idle {
                    asking.members[at].used = (0, 0);
                }
                let Some(asked) = asking.members[at].ask(self.now, now) else {
                    continue;
                };
                have_asked = false;
                if process.is_cut {
                    all.add("asks in vain", at, &asking, |_| {});
                    continue;
                }
                asking.answers(at, &asked, now, &mut all);
                all.fault("loses a question", at, &asking, |_| {});
                if process.question.is_none() {
                    all.fault("asks late", at, &asking, |next| {
                        next.members[at].question = Some((asked, self.now));
                    });
                }
            }
        }
        if have_asked {
            all.add("a second passes", 0, self, |later| {
                later.now += 1;
                later.earlier = Rc::clone(&later.hash);
                let (now, second) = (later.now, later.instant(begin));
                later.members.iter_mut().for_each(|it| it.wait(now, second));
                later.ghosts.retain(|(_, until)| now < *until);
            });
        }
        all
    }

    /// Adds the states after a fault of a process, or of the store.
    fn faults(&self, all: &mut Next) {
        for (at, process) in self.members.iter().enumerate() {
            all.fault("is killed", at, self, |next| {
                let ghost = next.members[at].used;
                next.ghosts.push(ghost);
                next.ghosts
                    .retain(|(amount, until)| *amount > 0 && self.now < *until);
                next.members[at] = Process::new(next.names);
                next.names += 1;
            });
            if !process.is_stopped {
                all.fault("is stopped", at, self, |next| {
                    next.members[at].is_stopped = true
                });
            }
            if !process.is_cut {
                all.fault("is cut off", at, self, |next| {
                    next.members[at].is_cut = true
                });
            }
        }
        for (what, hash) in [
            ("the store is emptied", &Rc::default()),
            ("the store fails over", &self.hash),
            ("the store fails over to old data", &self.earlier),
        ] {
            all.fault(what, 0, self, |next| {
                (next.run, next.hash) = (next.names, Rc::clone(hash));
                next.names += 1;
            });
        }
        // A step of the clock cannot be seen while the members that know the old one are silent.
        if self.members.iter().all(Process::notices) {
            all.fault("the clock goes forward", 0, self, |next| {
                next.ahead += 20;
                next.stepped = Some(next.now);
            });
        }
    }

    /// Adds the states after each answer of the store to this question: it grants what may be granted, or less, and
    /// the answer comes, is late or is lost.
    fn answers(&self, at: usize, asked: &Asked, now: Instant, all: &mut Next) {
        let (clock, run) = (self.clock(), self.run);
        let mut asking = self.clone();
        let question = asking.members[at].question.take();
        asking.members[at].question = question.filter(|(late, _)| late.number != asked.number);
        // No member gets its first answer in the seconds of a step of the clock.
        let is_step = self.stepped.is_some_and(|at| self.now < at + 3);
        let is_first = self.members[at].member.clock.is_none();
        let books = self.hash.books(asked, run, clock);
        let Some(books) = books.ok().filter(|_| !(is_step && is_first)) else {
            all.add("is refused", at, &asking, |_| {});
            return;
        };
        let mut last = None;
        for target in 0..=TOTAL {
            let mut hash = Division::clone(&self.hash);
            let share = hash.settle(asked, &books, [target.into(), 0, 0], run, clock)[0];
            // No larger target changes anything.
            if last.replace(share) == Some(share) {
                break;
            }
            asking.hash = Rc::new(hash);
            let answer = Answer {
                share: requests(u32::try_from(share).unwrap()),
                silence: Duration::ZERO,
                clock: Duration::from_millis(clock),
            };
            let reply = Some((asked.number, answer, run, self.now));
            all.add(GETS[share as usize], at, &asking, |next| {
                next.members[at].reply = reply;
                next.members[at].read(self.now, now);
            });
            all.fault("gets a late answer", at, &asking, |next| {
                next.members[at].reply = reply
            });
            all.fault("loses an answer", at, &asking, |_| {});
        }
    }

    fn hashes(&self) -> [&Division; 2] {
        [&self.hash, &self.earlier]
    }

    /// Returns the part of a record that matters. Its age does not after the longest time that a rule knows.
    fn entry(&self, it: &Record) -> (u64, u64) {
        (
            it.record[0],
            self.clock().saturating_sub(it.seen).min(8_000),
        )
    }

    /// A digest of all that matters later: times count from now, and names do not count. The chance that two of a
    /// million states have the same one is smaller than one in ten million.
    fn key(&self, begin: Instant) -> u64 {
        let now = self.instant(begin);
        let mut members = [0, 1, 2].map(|at: usize| self.members[at].key(self, now));
        members.sort_unstable();
        let is_live = |id: &u64| self.members.iter().any(|it| it.id == *id);
        let hashes = self.hashes().map(|hash| {
            let dead = hash.members.iter().filter(|(id, _)| !is_live(id));
            let mut dead: Vec<_> = dead.map(|(_, it)| self.entry(it)).collect();
            dead.sort_unstable();
            let grows = self.clock().saturating_sub(hash.began).min(8_000);
            let anew = (hash.anew + 8_000).saturating_sub(self.clock());
            (dead, self.run == hash.run, grows, anew)
        });
        let left = |(amount, until): &(u32, u64)| (*amount, until.saturating_sub(self.now));
        let mut ghosts: Vec<_> = self.ghosts.iter().map(left).collect();
        ghosts.sort_unstable();
        let step = self.stepped.map(|at| (self.now - at).min(3));
        let mut digest = DefaultHasher::new();
        (members, hashes, ghosts, self.faults, step).hash(&mut digest);
        digest.finish()
    }
}

// === impl Process ===

impl Process {
    fn new(id: u64) -> Self {
        Self {
            id,
            member: Member::new(1),
            used: (0, 0),
            is_stopped: false,
            is_cut: false,
            question: None,
            reply: None,
            run: None,
        }
    }

    /// Whether it can notice a step of the store's clock.
    fn notices(&self) -> bool {
        self.member.clock.is_some() && !self.is_cut && !self.is_stopped
    }

    fn in_use(&self, now: u64) -> u32 {
        if now < self.used.1 { self.used.0 } else { 0 }
    }

    /// A second passes. A question reaches the store within six, if at all.
    fn wait(&mut self, now: u64, at: Instant) {
        let asked = self.question.filter(|(_, asked)| now < asked + 6);
        let reply = self.reply.filter(|(.., sent)| now < sent + 3);
        (self.question, self.reply) = (asked, reply);
        self.send(now, at);
    }

    /// Uses all that it may, up to the next second.
    fn send(&mut self, now: u64, at: Instant) {
        let share = self.member.share(at).requests;
        if !self.is_stopped && share > 0 {
            let second = at + Duration::from_secs(1);
            let until = self.member.until.map_or(second, |until| until.min(second));
            let rest = (until - at).as_secs();
            self.used = (self.in_use(now).max(share), now + rest + COUNTS);
        }
    }

    fn load(&self, now: u64) -> LimiterState {
        LimiterState {
            held: requests(self.in_use(now)),
            in_flight: 1,
            waiting: 1,
            whole: requests(TOTAL),
            ..LimiterState::default()
        }
    }

    fn ask(&mut self, now: u64, at: Instant) -> Option<Asked> {
        loop {
            match self.member.on(Event::Seen(self.load(now)), at) {
                Action::Wait => return None,
                Action::Apply(..) => {}
                Action::Ask(question) => {
                    let three = |share: Share| [share.requests.into(), 0, 0];
                    let claim = question.held.requests.max(question.share.requests);
                    let last = self.run.filter(|(_, at)| now < at + 5);
                    return Some(Asked {
                        id: self.id,
                        number: question.number,
                        claim: [claim.into(), 0, 0],
                        have: three(question.share),
                        total: three(question.whole),
                        memory: COUNTS * 1_000,
                        stepped: question.stepped,
                        last: last.map(|(run, _)| run),
                        ..Asked::default()
                    });
                }
            }
        }
    }

    fn read(&mut self, now: u64, at: Instant) {
        if let Some((number, answer, run, _)) = self.reply.take() {
            self.run = Some((run, now));
            self.member.on(Event::Answered(number, answer), at);
            self.send(now, at);
        }
    }

    fn key(&self, state: &State, now: Instant) -> impl Hash + Ord + use<> {
        let ago = |at: Instant| now.saturating_duration_since(at).as_millis().min(8_000);
        let it = &self.member;
        let entries = state.hashes().map(|hash| hash.members.get(&self.id));
        let question = self.question.as_ref();
        // Numbers only count by their order.
        let numbers = [
            Some(it.number),
            entries[0].map(|entry| entry.number),
            entries[1].map(|entry| entry.number),
            question.map(|(asked, _)| asked.number),
            self.reply.map(|(number, ..)| number),
        ];
        let numbers = numbers.map(|number| numbers.iter().filter(|it| **it < number).count());
        let clock = state.clock();
        let entries = entries.map(|it| it.map(|it| state.entry(it)));
        let run = |run: u64| (run == state.run, run == state.hash.run);
        // Both clocks stand still together once they are old.
        let before = it.clock.map(|(then, at)| {
            let apart = i128::try_from(then.as_millis()).unwrap() - i128::from(clock);
            (
                apart + i128::try_from((now - at).as_millis()).unwrap(),
                ago(at),
            )
        });
        let is_asking = it.is_awaited(it.number, now);
        let known = if is_asking { 2_000 } else { 1_000 };
        (
            (
                numbers,
                entries,
                self.is_stopped,
                self.is_cut,
                self.in_use(state.now),
            ),
            self.used.1.saturating_sub(state.now),
            (
                it.share(now).requests,
                it.until.map(|until| until.saturating_duration_since(now)),
            ),
            (
                is_asking,
                it.asked.map(|at| ago(at).min(known)),
                before,
                it.stepped,
            ),
            question.map(|(it, at)| {
                (
                    (it.claim[0], it.have[0], it.stepped, it.last.map(run)),
                    state.now - at,
                )
            }),
            self.reply.map(|(_, answer, by, at)| {
                let apart = u128::from(clock) - answer.clock.as_millis();
                (answer.share.requests, apart, run(by), state.now - at)
            }),
            self.run
                .filter(|(_, at)| state.now < at + 5)
                .map(|(by, at)| (run(by), state.now - at)),
        )
    }
}

/// A time on the store's clock, long after its hash began.
const BEGIN: u64 = 1_000;

const GETS: [&str; 3] = ["gets nothing", "gets one", "gets both"];

/// Searches all states with so many faults, within so many seconds. Returns how many there are.
fn search(faults: u8, seconds: u64) -> usize {
    let begin = Instant::now();
    let first = State::new(faults);
    let mut known = HashSet::from([first.key(begin)]);
    // For each state, the event that led to it, and its predecessor.
    let mut reached = vec![("it begins", 0, 0)];
    let mut states = vec![(0, first)];
    let mut most = 0;
    while !states.is_empty() {
        for (from, state) in std::mem::take(&mut states) {
            for (what, at, next) in state.next(begin).0 {
                let sum = next.sum(next.instant(begin));
                if sum > TOTAL {
                    let past = |of: &(&str, usize, usize)| Some(reached[of.2]).filter(|_| of.2 > 0);
                    let past = std::iter::successors(Some((what, at, from)), past);
                    let past: Vec<_> = past.map(|(what, at, _)| (at, what)).collect();
                    panic!("{sum} of {TOTAL}, the last event first: {past:?}");
                }
                most = most.max(sum);
                if next.now <= seconds && known.insert(next.key(begin)) {
                    states.push((reached.len(), next));
                    reached.push((what, at, from));
                }
            }
        }
    }
    assert_eq!(most, TOTAL, "everything is used at times");
    known.len()
}

/// With one fault these are all states that there are. With two, those of the first seconds: `FLEET_SECONDS=12`
/// looks further.
#[test]
fn no_interleaving_lets_the_sum_exceed_the_limit() {
    println!("{} states with one fault", search(1, u64::MAX));
    let seconds = std::env::var("FLEET_SECONDS").map_or(2, |it| it.parse().unwrap());
    println!("{} states with two, in {seconds} s", search(2, seconds));
}
