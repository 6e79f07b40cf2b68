use std::{collections::VecDeque, task::Waker};

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Push,
    PushFront,
    /// Removes one of those who wait.
    Remove(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Push),
        1 => Just(Step::PushFront),
        2 => any::<prop::sample::Index>().prop_map(Step::Remove),
    ]
}

proptest! {
    #[test]
    fn behaves_as_a_queue_that_any_one_can_leave(steps in prop::collection::vec(step(), 0..200)) {
        let mut waiters = Waiters::new();
        let mut model: VecDeque<Key> = VecDeque::new();
        for step in steps {
            match step {
                Step::Push => {
                    let key = waiters.push_back(Waker::noop().clone());
                    prop_assert!(!model.contains(&key), "a live key is handed out once");
                    model.push_back(key);
                }
                Step::PushFront => {
                    let key = waiters.push_front(Waker::noop().clone());
                    prop_assert!(!model.contains(&key), "a live key is handed out once");
                    model.push_front(key);
                }
                Step::Remove(at) if !model.is_empty() => {
                    let key = model.remove(at.index(model.len())).expect("below the length");
                    waiters.remove(key);
                }
                Step::Remove(_) => {}
            }
            prop_assert_eq!(waiters.len(), model.len());
            prop_assert_eq!(waiters.is_empty(), model.is_empty());
            prop_assert_eq!(waiters.front().is_some(), !model.is_empty());
            for (place, key) in model.iter().enumerate() {
                prop_assert_eq!(waiters.is_front(*key), place == 0);
            }
        }
        for key in model {
            prop_assert!(waiters.is_front(key), "they leave in order");
            waiters.remove(key);
        }
        prop_assert!(waiters.is_empty());
    }
}

#[test]
fn a_node_is_used_again() {
    let mut waiters = Waiters::new();
    for _ in 0..1_000 {
        let key = waiters.push_back(Waker::noop().clone());
        waiters.remove(key);
    }
    assert_eq!(waiters.nodes.len(), 1);
}

#[test]
fn a_waiter_costs_thirty_two_bytes() {
    assert_eq!(size_of::<Node>(), 32);
}

#[test]
fn removing_twice_changes_nothing() {
    let mut waiters = Waiters::new();
    let first = waiters.push_back(Waker::noop().clone());
    let second = waiters.push_back(Waker::noop().clone());
    waiters.remove(first);
    waiters.remove(first);
    assert_eq!(waiters.len(), 1);
    assert!(waiters.is_front(second));
}
