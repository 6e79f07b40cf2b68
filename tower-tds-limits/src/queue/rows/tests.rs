use std::{collections::VecDeque, task::Waker};

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Push(Line),
    /// Of those who wait to be called.
    Call,
    /// One of those who have been called goes back to its line.
    CallOff(prop::sample::Index),
    Remove(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let line = prop_oneof![
        4 => Just(Line::Back),
        1 => Just(Line::Front),
        1 => Just(Line::Late),
    ];
    prop_oneof![
        4 => line.prop_map(Step::Push),
        2 => Just(Step::Call),
        1 => any::<prop::sample::Index>().prop_map(Step::CallOff),
        2 => any::<prop::sample::Index>().prop_map(Step::Remove),
    ]
}

fn push(rows: &mut Rows, line: Line) -> Key {
    let now = Instant::now();
    rows.push(line, Waker::noop().clone(), now, WaitCause::InFlight)
}

proptest! {
    #[test]
    fn behaves_as_rows_that_any_one_can_leave(steps in prop::collection::vec(step(), 0..200)) {
        let mut rows = Rows::new();
        let lines = [Line::Front, Line::Late, Line::Back];
        let mut model: [VecDeque<Key>; 3] = Default::default();
        let mut called: Vec<(Key, usize)> = Vec::new();
        for step in steps {
            match step {
                Step::Push(line) => {
                    let key = push(&mut rows, line);
                    let row = &mut model[place(line)];
                    if line == Line::Front {
                        row.push_front(key);
                    } else {
                        row.push_back(key);
                    }
                }
                Step::Call => {
                    let Some(at) = model.iter().position(|row| !row.is_empty()) else {
                        prop_assert_eq!(rows.next(), None);
                        continue;
                    };
                    let key = model[at].pop_front().expect("it is not empty");
                    prop_assert_eq!(rows.next(), Some(key));
                    prop_assert_eq!(key.line(), lines[at]);
                    prop_assert!(rows.call(key, Instant::now()).0.is_some(), "it has a waker");
                    called.push((key, at));
                }
                Step::CallOff(which) if !called.is_empty() => {
                    let (key, at) = called.swap_remove(which.index(called.len()));
                    rows.set_waker(key, Waker::noop());
                    rows.call_off(key, Instant::now(), Duration::ZERO);
                    let row = &mut model[at];
                    // Those who stood before it stand there again.
                    let before = row.iter().take_while(|other| **other < key);
                    row.insert(before.count(), key);
                }
                Step::Remove(which) if !rows.is_empty() => {
                    let all: Vec<Key> = model.iter().flatten().copied()
                        .chain(called.iter().map(|(key, _)| *key)).collect();
                    let key = all[which.index(all.len())];
                    prop_assert!(rows.remove(key).is_some());
                    model.iter_mut().for_each(|row| row.retain(|other| *other != key));
                    called.retain(|(other, _)| *other != key);
                }
                Step::CallOff(_) | Step::Remove(_) => {}
            }
            let waiting: usize = model.iter().map(VecDeque::len).sum();
            prop_assert_eq!(rows.len().saturating_sub(called.len()), waiting);
            for (at, line) in lines.into_iter().enumerate() {
                let any = model[..=at].iter().any(|row| !row.is_empty());
                prop_assert_eq!(rows.any_up_to(line), any);
            }
        }
    }
}

fn place(line: Line) -> usize {
    match line {
        Line::Front => 0,
        Line::Late => 1,
        Line::Back => 2,
    }
}
