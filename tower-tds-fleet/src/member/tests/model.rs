//! All interleavings of three members and a store: the theorem of DESIGN.md, by an exhaustive search.
//!
//! The members are the real ones, and the store is the script's twin without its division: whatever a member should
//! have, the search tries none, one and all. Questions and answers are lost, late, or overtaken; members use all
//! that they may at each second, are killed, stopped and continued; the store is emptied, fails over to a copy and
//! back, and its clock is set forward.

use std::{
    collections::{HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    rc::Rc,
    time::Duration,
};

use tokio::time::Instant;
use tower_tds_limits::Share;

use crate::{
    member::{Action, Answer, Event, GIVE_UP, LimiterState, Member},
    store::tests::twin::{Asked, Division, Record},
};

/// A fleet at one time. Times are seconds.
#[derive(Clone)]
struct State {
    now: u64,
    members: [Process; 3],
    /// Run of the master, and its hash: now, and at the beginning of this second.
    run: u64,
    hash: Division,
    earlier: Division,
    /// What killed members have in use, and until when.
    ghosts: Vec<(u32, u64)>,
    /// Names that were given to members and servers.
    names: u64,
    /// By how much the store's clock is ahead, and when it was set forward.
    ahead: u64,
    stepped: Option<u64>,
    /// Faults that may still happen.
    faults: u8,
    past: Option<Rc<Past>>,
}

struct Past {
    event: String,
    before: Option<Rc<Self>>,
}

#[derive(Clone)]
struct Process {
    id: u64,
    member: Member,
    /// What still counts, and until when.
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

/// A fault of the store, and what it changes.
type StoreFault = (&'static str, fn(&mut State));

/// What becomes of a reply.
#[derive(Debug, Clone, Copy)]
enum Reply {
    Comes,
    IsLate,
    IsLost,
}

/// Requests to share, and how long each counts: as long as the store withholds those of silent members.
const TOTAL: u32 = 2;
const COUNTS: u64 = 2;

fn requests(requests: u32) -> Share {
    Share {
        requests,
        ..Share::default()
    }
}

// === impl State ===

impl State {
    fn new(begin: Instant, faults: u8) -> Self {
        let process = |id| Process::new(id, begin);
        Self {
            now: 0,
            members: [0, 1, 2].map(process),
            run: 0,
            hash: Division::new(0),
            earlier: Division::new(0),
            ghosts: Vec::new(),
            names: 3,
            ahead: 0,
            stepped: None,
            faults,
            past: None,
        }
    }

    fn instant(&self, begin: Instant) -> Instant {
        begin + Duration::from_secs(self.now)
    }

    /// Milliseconds on the store's clock.
    fn clock(&self) -> u64 {
        (BEGIN + self.ahead + self.now) * 1_000
    }

    fn then(&self, event: impl Into<String>) -> Self {
        let mut next = self.clone();
        let (event, before) = (event.into(), self.past.clone());
        next.past = Some(Rc::new(Past { event, before }));
        next
    }

    fn text(&self) -> String {
        let mut events = Vec::new();
        let mut past = self.past.as_ref();
        while let Some(it) = past {
            events.push(it.event.clone());
            past = it.before.as_ref();
        }
        events.reverse();
        events.join("; ")
    }

    /// What may be counted at this time, at most.
    fn sum(&self, now: Instant) -> u32 {
        let of = |it: &Process| it.member.share(now).requests.max(it.in_use(self.now));
        let members = self.members.iter().map(of).sum::<u32>();
        let ghosts = self.ghosts.iter().filter(|(_, until)| self.now < *until);
        members + ghosts.map(|(amount, _)| amount).sum::<u32>()
    }

    /// The store answers one question, with this much for its member.
    fn answer(&mut self, at: usize, asked: &Asked, target: u32, reply: Reply, now: Instant) {
        let (clock, run) = (self.clock(), self.run);
        // No member gets its first answer in the seconds of a step of the clock.
        let is_step = self.stepped.is_some_and(|at| self.now < at + 3);
        if is_step && self.members[at].member.clock.is_none() {
            return;
        }
        let Ok(books) = self.hash.books(asked, run, clock) else {
            return;
        };
        let free = u64::from(TOTAL).saturating_sub(books.taken[0]);
        let plan = ([target.into(), 0, 0], [free, 0, 0]);
        let share = self.hash.settle(asked, &books, plan, run, clock);
        let answer = Answer {
            share: requests(u32::try_from(share[0]).unwrap()),
            silence: Duration::ZERO,
            clock: Duration::from_millis(clock),
        };
        let process = &mut self.members[at];
        if !matches!(reply, Reply::IsLost) {
            process.reply = Some((asked.number, answer, run, self.now));
        }
        if matches!(reply, Reply::Comes) {
            process.read(self.now, now);
        }
    }

    /// Each state that one event leads to. In each second, each member that runs asks once, in any order; one that
    /// does not is one whose question is lost.
    fn next(&self, begin: Instant) -> Vec<Self> {
        let now = self.instant(begin);
        let mut all = Vec::new();
        let mut have_asked = true;
        for (at, process) in self.members.iter().enumerate() {
            self.faults_of(at, now, &mut all);
            if let Some((asked, _)) = process.question {
                self.answers(at, &asked, now, &mut all);
            }
            if process.is_stopped {
                let mut goes_on = self.then(format!("{at} goes on"));
                goes_on.members[at].is_stopped = false;
                all.push(goes_on);
                continue;
            }
            if process.is_cut {
                let mut back = self.then(format!("{at} is back"));
                back.members[at].is_cut = false;
                all.push(back);
            }
            if process.reply.is_some() {
                let mut read = self.then(format!("{at} reads"));
                read.members[at].read(self.now, now);
                all.push(read);
            }
            // All its calls may have ended.
            let is_idle = [false, true].into_iter();
            for is_idle in is_idle.filter(|is_idle| !is_idle || process.in_use(self.now) > 0) {
                let mut asking = self.then(format!("{at} asks, idle: {is_idle}"));
                if is_idle {
                    asking.members[at].used = (0, 0);
                }
                if let Some(asked) = asking.members[at].ask(self.now, now) {
                    have_asked = false;
                    if process.is_cut {
                        all.push(asking);
                        continue;
                    }
                    asking.answers(at, &asked, now, &mut all);
                    if let Some(lost) = asking.fault("lost") {
                        if process.question.is_none() {
                            let mut late = lost.then("late");
                            late.members[at].question = Some((asked, self.now));
                            all.push(late);
                        }
                        all.push(lost);
                    }
                }
            }
        }
        if have_asked {
            let mut later = self.then("a second");
            later.now += 1;
            later.earlier = later.hash.clone();
            let second = later.instant(begin);
            later
                .members
                .iter_mut()
                .for_each(|it| it.wait(later.now, second));
            later.ghosts.retain(|(_, until)| later.now < *until);
            all.push(later);
        }
        all
    }

    fn fault(&self, what: impl Into<String>) -> Option<Self> {
        let mut next = self.then(what);
        next.faults = self.faults.checked_sub(1)?;
        Some(next)
    }

    /// Adds the states after a fault of this process, or of the store.
    fn faults_of(&self, at: usize, now: Instant, all: &mut Vec<Self>) {
        if let Some(mut killed) = self.fault(format!("{at} is killed")) {
            killed.ghosts.push(killed.members[at].used);
            killed
                .ghosts
                .retain(|(amount, until)| *amount > 0 && killed.now < *until);
            killed.members[at] = Process::new(self.names, now);
            killed.names += 1;
            all.push(killed);
        }
        let stopped = self.fault(format!("{at} is stopped"));
        if let Some(mut stopped) = stopped.filter(|_| !self.members[at].is_stopped) {
            stopped.members[at].is_stopped = true;
            all.push(stopped);
        }
        let cut = self.fault(format!("{at} is cut off"));
        if let Some(mut cut) = cut.filter(|_| !self.members[at].is_cut) {
            cut.members[at].is_cut = true;
            all.push(cut);
        }
        // Faults of the store are listed with the first process.
        if at == 0 && self.faults > 0 {
            let changes: [StoreFault; 4] = [
                ("the store is emptied", |next| {
                    next.lose(Division::default())
                }),
                ("it fails over", |next| next.lose(next.hash.clone())),
                ("it fails over to old data", |next| {
                    next.lose(next.earlier.clone())
                }),
                ("its clock goes forward", |next| {
                    next.ahead += 20;
                    next.stepped = Some(next.now);
                }),
            ];
            for (what, change) in changes {
                let mut next = self.fault(what).expect("there is one left");
                change(&mut next);
                // A step of the clock cannot be seen while the members that know the old one are silent.
                if next.stepped == self.stepped || self.members.iter().all(Process::notices) {
                    all.push(next);
                }
            }
        }
    }

    /// Another server is the master, with this hash.
    fn lose(&mut self, hash: Division) {
        (self.run, self.hash) = (self.names, hash);
        self.names += 1;
    }

    /// Adds the states after each answer of the store to this question.
    fn answers(&self, at: usize, asked: &Asked, now: Instant, all: &mut Vec<Self>) {
        for target in 0..=TOTAL {
            for reply in [Reply::Comes, Reply::IsLate, Reply::IsLost] {
                let what = format!("gets {target} of {}, {reply:?}", asked.number);
                let next = match reply {
                    Reply::Comes => Some(self.then(what)),
                    Reply::IsLate | Reply::IsLost => self.fault(what),
                };
                let Some(mut next) = next else { continue };
                let question = next.members[at].question.take();
                next.members[at].question =
                    question.filter(|(late, _)| late.number != asked.number);
                next.answer(at, asked, target, reply, now);
                all.push(next);
            }
        }
    }

    fn hashes(&self) -> [&Division; 2] {
        [&self.hash, &self.earlier]
    }

    /// What matters of a record. Its age does not after the longest time that a rule knows.
    fn entry(&self, it: &Record) -> (u64, u64) {
        (
            it.record[0],
            self.clock().saturating_sub(it.seen).min(8_000),
        )
    }

    /// All that matters for what may happen: times count from now, and names do not count.
    fn key(&self, begin: Instant) -> u128 {
        let now = self.instant(begin);
        let mut members: Vec<_> = self.members.iter().map(|it| it.key(self, now)).collect();
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
        let mut ghosts: Vec<_> = self
            .ghosts
            .iter()
            .map(|(n, until)| (*n, until.saturating_sub(self.now)))
            .collect();
        ghosts.sort_unstable();
        let step = self.stepped.map(|at| (self.now - at).min(3));
        let key = (members, hashes, ghosts, self.faults, step);
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, &key).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        half(0) << 64 | half(1)
    }
}

// === impl Process ===

impl Process {
    fn new(id: u64, now: Instant) -> Self {
        Self {
            id,
            member: Member::new(now),
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
            let until = self.member.until.min(at + Duration::from_secs(1));
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
            unit: 1,
            ..LimiterState::default()
        }
    }

    fn ask(&mut self, now: u64, at: Instant) -> Option<Asked> {
        loop {
            match self.member.on(Event::Seen(self.load(now)), at) {
                Action::Wait => return None,
                Action::Apply(..) | Action::CloseIdle(..) => {}
                Action::Ask(question) => {
                    let three = |share: Share| [share.requests.into(), 0, 0];
                    let last = self.run.filter(|(_, at)| now < at + 5);
                    return Some(Asked {
                        id: self.id,
                        number: question.number,
                        claim: three(question.claim),
                        have: three(question.share),
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
        let mut order = numbers.to_vec();
        order.sort_unstable();
        order.dedup();
        let numbers = numbers.map(|number| order.iter().position(|it| *it == number));
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
        let asked = it.asked.filter(|at| now < *at + GIVE_UP).map(ago);
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
                it.until.saturating_duration_since(now),
            ),
            (
                asked,
                it.last.map(|at| ago(at).min(1_000)),
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

/// Searches all states with so many faults, within so many seconds. Returns how many there are.
fn search(faults: u8, seconds: u64) -> usize {
    let begin = Instant::now();
    let first = State::new(begin, faults);
    let mut known = HashSet::from([first.key(begin)]);
    let mut queue = VecDeque::from([first]);
    let mut most = 0;
    while let Some(state) = queue.pop_front() {
        for next in state.next(begin) {
            let sum = next.sum(next.instant(begin));
            assert!(sum <= TOTAL, "{sum} of {TOTAL}: {}", next.text());
            most = most.max(sum);
            if next.now <= seconds && known.insert(next.key(begin)) {
                queue.push_back(next);
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
