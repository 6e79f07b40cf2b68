//! How a call ends that does not succeed.

use super::Session;
use crate::clock;
use crate::error::Error;
use crate::kind::Kind;
use crate::stop::Stop;

// === impl Session ===

impl<S, B, P> Session<S, B, P> {
    /// What follows from the end of an attempt's time.
    pub(in crate::retry) fn cut_off(&mut self) -> Result<(), Error> {
        let now = clock::now();
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            let mut error = Error::new(Kind::Timeout, DEADLINE);
            error.set_earlier(self.failure());
            return Err(self.note(error, Stop::Deadline));
        }
        self.failed(Error::new(Kind::Timeout, ATTEMPT))
    }

    /// The error for a service that did not become ready again.
    pub(in crate::retry) fn not_ready(&mut self, mut error: Error) -> Error {
        error.set_earlier(self.failure());
        self.note(error, Stop::NotReady)
    }

    /// The error for a retry that cannot begin: the failure that it was to mend.
    pub(in crate::retry) fn give_up(&mut self, stop: Stop) -> Error {
        let failure = self.failure();
        if let (Some(_), Some(past)) = (&failure, &mut self.past) {
            past.pop();
        }
        let error = failure.unwrap_or_else(|| Error::new(Kind::Timeout, DEADLINE));
        self.note(error, stop)
    }

    fn failure(&mut self) -> Option<Error> {
        self.past.as_mut()?.failure.take()
    }

    pub(super) fn note(&mut self, mut error: Error, stop: Stop) -> Error {
        let elapsed = self.elapsed();
        let facts = error.facts_mut();
        let tape = &self.kept.tape;
        facts.note_parts(tape.method(), tape.parts());
        if let Some(past) = &mut self.past {
            facts.attempts = past.attempts;
            facts.slept = past.slept;
            facts.history = std::mem::take(&mut past.kinds).into_boxed_slice();
        }
        facts.elapsed = Some(elapsed);
        facts.stop = Some(stop);
        if let Some(counts) = &self.shared.policy.counts {
            counts.note_stop(stop);
        }
        tracing::debug!(
            kind = %error.kind(),
            attempts = error.attempts(),
            stop = %stop,
            "request failed",
        );
        error
    }
}

const DEADLINE: &str = "the deadline of the retry layer passed";

const ATTEMPT: &str = "the retry layer's timeout for one attempt passed";
