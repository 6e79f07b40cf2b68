//! What is shared out: to members that go on without the store, which is nobody else's meanwhile, and in turns.

use crate::store::{KEEP, Store, Told};

/// The window alone: what is live is what is granted.
const WINDOW: &str = "50 1002000 20000 20040 0 -1 0 0";

const BEGIN: i64 = 1_000_000_000_000;

/// All that one may have at once.
fn all(store: &Store, clock: i64) -> usize {
    store.move_to(clock);
    let reply = store.ask("7", 60, &[]).expect("the same limits");
    let unsent: Vec<_> = reply.granted.iter().map(|id| Told::Unsent(*id)).collect();
    store.ask("7", 0, &unsent).expect("the same limits");
    reply.granted.len()
}

#[test]
fn the_share_of_a_member_that_is_silent_is_withheld() {
    let store = Store::new(WINDOW);
    store.ask_with("1", 0, 12, &[]).expect("its share");
    store.ask_with("2", 0, 5, &[]).expect("its share");
    assert_eq!(all(&store, BEGIN + KEEP), 50);
    store.ask_with("2", 0, 5, &[]).expect("its share");
    // That may have been sent long ago, and what comes after its answer was not.
    assert_eq!(all(&store, BEGIN + KEEP + 1), 33);
    store.ask_with("2", 0, 5, &[]).expect("its share");
    assert_eq!(all(&store, BEGIN + KEEP + 1), 38);
    // Heard of again, or gone with a word.
    store.ask_with("1", 0, 12, &[]).expect("its share");
    store.ask_with("1", 0, 12, &[]).expect("its share");
    assert_eq!(all(&store, BEGIN + KEEP + 2), 50);
    assert_eq!(all(&store, BEGIN + 3 * KEEP), 33);
    store.ask_with("1", 0, -1, &[]).expect("a word");
    assert_eq!(all(&store, BEGIN + 3 * KEEP), 45);
    // Longer than its share is good for: it is dead.
    let minutes = 60_000_000;
    assert_eq!(all(&store, BEGIN + 11 * minutes), 45);
    assert_eq!(all(&store, BEGIN + 13 * minutes), 50);
}

const SECOND: i64 = 1_000_000;

/// A connection that comes for a moment: the member has heard later than the store knows.
#[test]
fn a_share_is_withheld_for_as_long_as_its_member_may_use_it() {
    let store = Store::new(WINDOW);
    let share = |at: i64, numbers| {
        store.move_to(BEGIN + at * SECOND);
        store.ask_as("1", 0, 25, numbers, &[]).expect("its share");
    };
    share(5, [3, 2, 0]);
    share(7, [4, 3, 0]);
    // Away for two minutes, there for one question, and away again.
    share(127, [5, 4, 0]);
    // It may use it until 600 s after that.
    for at in [150, 655, 661, 727] {
        assert_eq!(all(&store, BEGIN + at * SECOND), 25, "{at}");
    }
    assert_eq!(all(&store, BEGIN + 788 * SECOND), 50);
}

#[test]
fn a_share_outlives_other_limits_and_a_restart_with_what_the_store_knew() {
    let mut store = Store::new(WINDOW);
    store.ask_with("1", 0, 20, &[]).expect("its share");
    assert_eq!(all(&store, BEGIN + SECOND), 50);
    // All others have other limits now, of which the first comes when nobody has kept the old ones for long.
    store.terms = "40 1002000 20000 20040 0 -1 0 0".to_owned();
    assert_eq!(all(&store, BEGIN + 70 * SECOND), 40);
    assert_eq!(all(&store, BEGIN + 91 * SECOND), 20);
    store.run = "2".to_owned();
    // By the clock of another machine.
    assert_eq!(all(&store, 2 * BEGIN), 20);
    assert_eq!(all(&store, 2 * BEGIN + 500 * SECOND), 20);
}

#[test]
fn a_share_that_another_memory_has_agreed_to_is_withheld_from_the_first_question() {
    let store = Store::new(WINDOW);
    // It was sent long ago, and its member is alone.
    let late = store.ask_as("1", 0, 20, [7, 6, 5], &[]).expect("its share");
    assert!(late.agreed);
    assert_eq!(all(&store, BEGIN), 30);
    store.ask_as("1", 0, 20, [8, 7, 5], &[]).expect("its share");
    assert_eq!(all(&store, BEGIN + SECOND), 50);
}

#[test]
fn shares_are_at_most_half_of_the_quota_together_and_one_that_is_too_much_is_none() {
    let store = Store::new(WINDOW);
    assert!(store.ask_with("1", 0, 15, &[]).expect("its share").agreed);
    let refused = store
        .ask_with("2", 1, 11, &[])
        .expect("a lease all the same");
    assert_eq!((refused.agreed, refused.granted.len()), (false, 1));
    let told = Told::Unsent(refused.granted[0]);
    assert!(
        store
            .ask_with("2", 0, 10, &[told])
            .expect("25 of 50")
            .agreed
    );
    // All of them are away.
    assert_eq!(all(&store, BEGIN + KEEP + 1), 25);
}

/// Its member may be alone before it hears anything else.
#[test]
fn a_share_that_is_agreed_on_stays_so_whatever_the_limits_are() {
    let mut store = Store::new(WINDOW);
    store.ask_with("1", 0, 25, &[]).expect("its share");
    store.terms = "40 1002000 20000 20040 0 -1 0 0".to_owned();
    store.move_to(BEGIN + 70 * SECOND);
    assert!(store.ask_with("1", 0, 25, &[]).expect("its share").agreed);
    assert_eq!(all(&store, BEGIN + 100 * SECOND), 15);
}

#[test]
fn shares_leave_half_of_the_places_of_a_bucket() {
    for (bucket, sharers) in [(-1, 25), (0, 0), (1, 1), (10, 5), (-2, 5)] {
        let store = Store::new(&format!("50 1002000 20000 20040 0 {bucket} 0 0"));
        let is_agreed = |who: &i32| {
            let reply = store.ask_with(&who.to_string(), 0, 1, &[]);
            reply.expect("its share").agreed
        };
        assert_eq!((1..=50).filter(is_agreed).count(), sharers, "{bucket}");
    }
}

/// Half of what the rung keeps within, so that nobody stands for eleven minutes.
#[test]
fn members_that_were_killed_leave_half_of_what_the_rung_leaves() {
    for (rung, left) in [(0, 25), (3, 20), (5, 13), (18, 1)] {
        let mut store = Store::new("50 1002000 20000 20040 0 10 0 0");
        store.rung = rung;
        for member in ["1", "2", "3", "4", "5"] {
            let reply = store.ask_with(member, 0, 5, &[]).expect("its share");
            assert!(reply.agreed);
        }
        let (mut clock, mut granted) = (BEGIN + KEEP + 1, 0);
        let end = clock + 2 * SECOND;
        while clock < end {
            store.move_to(clock);
            let reply = store.ask("7", 1, &[]).expect("the same limits");
            let proven = reply.granted.iter().map(|id| Told::Proven(*id, "a", 0));
            let proven: Vec<_> = proven.collect();
            granted += proven.len();
            store.ask("7", 0, &proven).expect("the same limits");
            clock += 5_000;
        }
        assert!(
            (left..=2 * left + 5).contains(&granted),
            "{rung}: {granted}"
        );
    }
}

#[test]
fn a_turn_is_the_part_of_what_is_open_that_is_left_for_each() {
    let store = Store::new("1000 1002000 1000 1002 0 -1 0 0");
    let all = store.ask("1", 1_000, &[]).expect("the same limits").granted;
    for member in ["2", "3", "4"] {
        let none = store.ask(member, 300, &[]).expect("the same limits");
        assert_eq!(none.granted.len(), 0);
    }
    let unsent: Vec<_> = all[..600].iter().map(|id| Told::Unsent(*id)).collect();
    store.ask("1", 0, &unsent).expect("the same limits");
    let turns = ["2", "3", "4"].map(|member| {
        let turn = store.ask(member, 300, &[]).expect("the same limits");
        turn.granted.len()
    });
    // A third, a third of the rest, and so on: who has had a turn waits again.
    assert_eq!(turns, [200, 133, 89]);
}
