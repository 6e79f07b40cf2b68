//! Between the processes and their store.

use std::time::Duration;

use super::{
    World,
    event::{Asked, Question, What},
};
use crate::member::Reply;

// === impl World ===

impl World {
    /// The process does what it has to do now.
    pub(super) fn look(&mut self, who: usize) {
        let now = self.now;
        for id in self.processes[who].alone(now) {
            self.at(now, What::Send(who, id));
        }
        let process = &mut self.processes[who];
        match process.next(now) {
            Ok(question) => {
                let (connection, cut) = (process.connection, process.cut);
                let (mut delay, mut answered) = (self.hop.delay(&mut self.rng), true);
                if cut > now {
                    answered = false;
                    self.at(now + TIMEOUT, What::Broken(who, connection));
                    // A socket that is closed still sends what it was given.
                    delay += cut - now;
                    if !self.late {
                        return;
                    }
                } else if self.breaks > 0 && self.rng.u32(..self.breaks) == 0 {
                    // Found out at once, or by a timeout; heard by the store, or not, or when the process asks again.
                    answered = false;
                    let broken = if self.rng.bool() { delay * 2 } else { TIMEOUT };
                    self.at(now + broken, What::Broken(who, connection));
                    delay = match self.rng.u32(..3) {
                        0 => return,
                        1 => delay,
                        _ => TIMEOUT * 2,
                    };
                }
                let server = self.server;
                let asked = Asked {
                    server,
                    question,
                    answered,
                };
                self.at(now + delay, What::Ask(who, connection, asked));
            }
            Err(Some(at)) if process.wakes.is_none_or(|wakes| at < wakes) => {
                // The timer's ticks are milliseconds.
                let late = u64::try_from(at.as_nanos().div_ceil(1_000_000)).expect("no eternity");
                let at = Duration::from_millis(late);
                process.wakes = Some(at);
                self.at(at, What::Look(who));
            }
            Err(_) => {}
        }
    }

    pub(super) fn ask(&mut self, who: usize, connection: u32, asked: &Asked) {
        if asked.server != self.server {
            return;
        }
        let now = i64::try_from(self.now.as_micros()).expect("no eternity");
        let store = &self.stores[self.processes[who].store];
        store.move_to(CLOCK + now + self.skew);
        let Question {
            want,
            share,
            numbers,
            told,
        } = &asked.question;
        let want = i64::try_from(*want).expect("few");
        let reply = store
            .ask_as(&who.to_string(), want, *share, *numbers, told)
            .expect("one set of terms");
        let pushes = store.take_told();
        if asked.answered {
            let at = self.delivered(who);
            let wait = u64::try_from(reply.wait).ok().map(Duration::from_micros);
            let (granted, unknown) = (reply.granted, reply.unknown);
            self.at(
                at,
                What::Answer(
                    who,
                    connection,
                    Reply {
                        granted,
                        wait,
                        paused: Duration::ZERO,
                        agreed: reply.agreed,
                        server: reply.server,
                        unknown,
                    },
                ),
            );
        }
        for (channel, wait) in pushes {
            let whom = channel
                .strip_prefix("to-")
                .and_then(|whom| whom.parse().ok());
            let whom: usize = whom.expect("the channel of a process");
            let at = self.delivered(whom);
            let wait = Duration::from_micros(wait.unsigned_abs());
            let connection = self.processes[whom].connection;
            self.at(at, What::Push(whom, connection, wait));
        }
    }

    fn delivered(&mut self, who: usize) -> Duration {
        let at = self.now + self.hop.delay(&mut self.rng);
        let process = &mut self.processes[who];
        process.delivered = process.delivered.max(at);
        process.delivered
    }

    pub(super) fn answered(&mut self, who: usize, reply: Reply) {
        let sending = self.processes[who].answered(self.now, reply);
        for id in sending {
            let process = &mut self.processes[who];
            if let Some(stop) = process.stops_before_send.take() {
                process.stopped = self.now + stop;
            }
            self.at(self.now, What::Send(who, id));
        }
        self.look(who);
    }

    /// Another server process has taken the place of the store, with nothing in its memory.
    pub(super) fn restart(&mut self) {
        self.server += 1;
        let store = &mut self.stores[0];
        store.run = format!("{:x}", self.server);
        store.flush();
        for who in 0..self.processes.len() {
            let connection = self.processes[who].connection;
            let at = self.delivered(who);
            self.at(at, What::Broken(who, connection));
        }
    }
}

/// Of the store, at the beginning, in microseconds.
const CLOCK: i64 = 1_000_000_000_000;

/// Of one answer of the store.
const TIMEOUT: Duration = Duration::from_secs(2);
