//! The driver and those who share its token, under every interleaving of their threads: the code
//! as it is, on loom's locks.

mod server;
mod sync;

#[path = "../refresh.rs"]
mod refresh;
#[path = "../shared.rs"]
mod shared;
#[path = "../slot.rs"]
mod slot;
#[path = "../wait.rs"]
mod wait;

use std::{future::poll_fn, sync::Arc, task::Poll};

use loom::thread;

use self::{
    server::{Reply, Server},
    shared::{Outcome, Shared},
    sync::{Fate, block_on},
    wait::Wait,
};
use super::super::Settings;
use crate::{TokenError, state::Complaint};

/// The handle, as far as callers need it.
#[derive(Clone)]
struct TokenSource {
    shared: Arc<Shared>,
}

// === impl TokenSource ===

impl TokenSource {
    fn ready(&self) -> Result<(), TokenError> {
        let mut wait = Wait::default();
        block_on(poll_fn(|cx| wait.poll(&self.shared, cx)))
    }

    /// Looks so many times, and leaves.
    fn leave_after(&self, looks: usize) {
        let mut wait = Wait::default();
        let mut left = looks;
        block_on(poll_fn(|cx| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            wait.poll(&self.shared, cx).map(drop)
        }));
    }

    /// The number of the token that a call would take.
    fn generation(&self) -> Option<u64> {
        self.shared.header().map(|(_, generation)| generation)
    }

    /// Waits, and takes what a call would take.
    fn take(&self) -> Option<u64> {
        self.ready().expect("a token request succeeds");
        self.generation()
    }

    /// Is refused with the token of this number; whether there is another, in the end.
    fn find_dead(&self, generation: u64) -> bool {
        match self.shared.complain(generation, Complaint::Dead(1)) {
            Outcome::Superseded => true,
            Outcome::Kept => false,
            Outcome::Replacing(mut wait) => block_on(poll_fn(|cx| {
                wait.poll_successor(&self.shared, generation, cx)
            })),
        }
    }
}

/// Goes through every interleaving with so many switches away from a thread that could go on.
fn check(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    let switches = std::env::var("MODEL_SWITCHES").ok();
    model.preemption_bound = Some(switches.map_or(1, |count| count.parse().expect("a number")));
    model.max_branches = 10_000;
    model.check(run);
}

#[test]
fn one_request_serves_all_who_ask() {
    check(|| {
        sync::begin(&[], 0);
        let server = Server::new([Reply::Token]);
        let tokens = server.tokens();
        let other = tokens.clone();
        let other = thread::spawn(move || other.take());
        assert_eq!(tokens.take(), Some(1));
        assert_eq!(other.join().expect("it ends"), Some(1));
        assert_eq!(server.posts(), 1);
    });
}

#[test]
fn a_failure_reaches_all_who_wait_and_is_not_repeated() {
    check(|| {
        sync::begin(&[], 0);
        let server = Server::new([Reply::Refusal]);
        let tokens = server.tokens();
        let other = tokens.clone();
        let other = thread::spawn(move || other.ready());
        assert!(tokens.ready().is_err_and(|error| error.is_rejected()));
        let other = other.join().expect("it ends");
        assert!(other.is_err_and(|error| error.is_rejected()));
        assert_eq!(server.posts(), 1);
    });
}

#[test]
fn a_caller_who_leaves_at_any_look_loses_nothing_for_the_others() {
    for looks in 1..=2 {
        check(move || {
            sync::begin(&[], 0);
            let server = Server::new([Reply::Token]);
            let tokens = server.tokens();
            let leaver = tokens.clone();
            let leaver = thread::spawn(move || leaver.leave_after(looks));
            assert_eq!(tokens.take(), Some(1));
            leaver.join().expect("it ends");
            assert_eq!(server.posts(), 1);
        });
    }
}

/// The driver awaits a demand, a key and a reply, and then demands again.
#[test]
fn a_driver_that_ends_with_its_runtime_at_any_await_hands_over() {
    for poll in 0..=4 {
        check(move || {
            sync::begin(&[Fate::Ends(poll)], 0);
            let server = Server::new([Reply::Token, Reply::Token]);
            let tokens = server.tokens();
            let generation = tokens.take().expect("a wait ends with a token");
            assert!(generation <= 2 && server.posts() <= 2);
            assert_eq!(tokens.take(), Some(generation));
        });
    }
}

#[test]
fn a_token_refused_by_many_is_replaced_once_and_serves_until_then() {
    check(|| {
        sync::begin(&[], 0);
        let server = Server::new([Reply::Token, Reply::Token]);
        let tokens = server.tokens();
        assert_eq!(tokens.take(), Some(1));
        let other = tokens.clone();
        let other = thread::spawn(move || {
            assert!(other.generation().is_some());
            assert!(other.find_dead(1));
            other.generation()
        });
        assert!(tokens.find_dead(1));
        assert_eq!(tokens.generation(), Some(2));
        assert_eq!(other.join().expect("it ends"), Some(2));
        // A refusal that comes late says nothing about the new one.
        assert!(tokens.find_dead(1));
        assert_eq!(tokens.generation(), Some(2));
        assert_eq!(server.posts(), 2);
    });
}

#[test]
fn a_task_that_looks_at_its_clock_meanwhile_never_brings_a_replaced_token_back() {
    check(|| {
        // Of these, the first request takes some.
        sync::begin(&[], 4);
        let server = Server::new([Reply::Token, Reply::Token]);
        let tokens = server.tokens();
        assert_eq!(tokens.take(), Some(1));
        assert!(tokens.find_dead(1));
        assert_eq!(tokens.generation(), Some(2));
        assert_eq!(tokens.take(), Some(2));
        assert_eq!(server.posts(), 2);
    });
}

#[test]
fn a_token_that_its_task_left_behind_is_taken_up_by_the_next() {
    check(|| {
        sync::begin(&[Fate::Ends(3)], 0);
        let server = Server::new([Reply::Token, Reply::Token]);
        let tokens = server.tokens();
        let first = tokens.take();
        let other = tokens.clone();
        let other = thread::spawn(move || other.take());
        assert_eq!(tokens.take(), first);
        assert_eq!(other.join().expect("it ends"), first);
    });
}

#[test]
fn a_token_refused_while_the_next_task_takes_it_up_is_replaced() {
    check(|| {
        sync::begin(&[Fate::Ends(3)], 0);
        let server = Server::new([Reply::Token, Reply::Token, Reply::Token]);
        let tokens = server.tokens();
        let generation = tokens.take().expect("a wait ends with a token");
        let other = tokens.clone();
        let other = thread::spawn(move || other.ready());
        // The task may end with its runtime meanwhile, and then the answer is that nobody knows.
        if tokens.find_dead(generation) {
            assert_ne!(tokens.generation(), Some(generation));
        }
        assert!(other.join().expect("it ends").is_ok());
        assert!(tokens.generation().is_some());
    });
}
