//! The store's memory: its clock, other limits, refusals and pauses.

use crate::store::{DEFAULT, Store, Told};

const BEGIN: i64 = 1_000_000_000_000;
const SECOND: i64 = 1_000_000;

fn grants(store: &Store, want: i64) -> Vec<i64> {
    store.ask("1", want, &[]).expect("the same limits").granted
}

fn told(store: &Store, told: Told) {
    store.ask("1", 0, &[told]).expect("the same limits");
}

#[test]
fn a_clock_that_is_put_back_costs_nothing() {
    let store = Store::new("50 1002000 20000 20040 0 -1 0 0");
    for id in grants(&store, 50) {
        told(&store, Told::Proven(id, "a", 0));
    }
    let hour = 3_600 * SECOND;
    store.move_to(BEGIN - hour);
    assert!(grants(&store, 1).is_empty());
    store.move_to(BEGIN - hour + 1_002_000);
    assert_eq!(grants(&store, 50).len(), 50);
}

#[test]
fn other_limits_are_refused_while_anybody_keeps_these_and_are_kept_then() {
    let mut store = Store::new("50 1002000 20000 20040 0 -1 0 31002000");
    store.ask("1", 0, &[]).expect("the first");
    store.terms = "40 1002000 20000 20040 0 -1 0 31002000".to_owned();
    store.move_to(BEGIN + 64 * SECOND);
    let refused = store.ask("2", 1, &[]).expect_err("others are kept");
    assert!(refused.starts_with("FLEETTERMS"), "{refused}");
    store.move_to(BEGIN + 66 * SECOND);
    let new = store.ask("2", 1, &[]).expect("nobody keeps them");
    assert_eq!((new.granted.len(), new.opens), (0, 31_002_000));
}

#[test]
fn what_was_heard_outlives_a_restart() {
    let mut store = Store::new(DEFAULT);
    for id in grants(&store, 3) {
        told(&store, Told::Proven(id, "r", 0));
    }
    store.move_to(BEGIN + 2 * SECOND);
    let id = grants(&store, 1)[0];
    told(&store, Told::Proven(id, "q", 30 * SECOND));
    store.run = "2".to_owned();
    let again = store.ask("1", 1, &[]).expect("the same limits");
    assert_eq!((again.rung, again.paused), (1, 30 * SECOND));
    assert!(again.granted.is_empty());
}

#[test]
fn a_pause_is_as_long_as_it_was_by_the_clock_of_a_server_that_has_another() {
    let mut store = Store::new(DEFAULT);
    let id = grants(&store, 1)[0];
    told(&store, Told::Proven(id, "q", 5 * SECOND));
    store.run = "2".to_owned();
    store.move_to(BEGIN - 3_600 * SECOND);
    let again = store.ask("1", 1, &[]).expect("the same limits");
    assert_eq!(again.paused, 5 * SECOND);
}

#[test]
fn what_was_sent_before_a_pause_makes_it_no_longer_and_ends_no_try() {
    let store = Store::new(DEFAULT);
    let sent = grants(&store, 5);
    for id in &sent[..4] {
        told(&store, Told::Proven(*id, "q", 0));
    }
    // Told again, too: one second.
    told(&store, Told::Proven(sent[0], "q", 0));
    store.move_to(BEGIN + SECOND);
    let tries = grants(&store, 1);
    assert_eq!(tries.len(), 1);
    told(&store, Told::Proven(sent[4], "q", 0));
    told(&store, Told::Proven(tries[0], "a", 0));
    assert_eq!(grants(&store, 1).len(), 1);
}

#[test]
fn a_server_that_others_have_stood_in_for_is_not_believed() {
    let mut store = Store::new("50 1002000 20000 20040 0 -1 0 31002000");
    let ask = |store: &Store, server| {
        let reply = store.ask_as("1", 1, 0, [2, 1, server], &[]);
        reply.expect("the same limits")
    };
    let one = ask(&store, 0).server;
    store.move_to(BEGIN + 40 * SECOND);
    assert_eq!(ask(&store, one).opens, 0);
    // The member was led to another, which has granted something, and is led back.
    store.move_to(BEGIN + 80 * SECOND);
    assert_eq!(ask(&store, 77).opens, 31_002_000);
    // Another member was there, too: that is known.
    store.move_to(BEGIN + 81 * SECOND);
    assert_eq!(ask(&store, 77).opens, 30_002_000);
    // Who was at a server that this one follows misses nothing.
    store.run = "2".to_owned();
    ask(&store, one);
    store.move_to(BEGIN + 120 * SECOND);
    assert_eq!(ask(&store, one).opens, 0);
}

/// Two servers that take each other's place again and again, each with what it knew when it was left.
#[test]
fn a_server_that_has_stood_in_before_is_believed_no_more_than_the_first_time() {
    let servers = ["1", "2"].map(|run| {
        let mut store = Store::new("50 1002000 20000 20040 0 -1 0 31002000");
        store.run = run.to_owned();
        store
    });
    let (mut clock, mut known) = (BEGIN, 0);
    for change in 0..6 {
        let store = &servers[change % 2];
        store.move_to(clock);
        let ask = |want, known| {
            let reply = store.ask_as("1", want, 0, [2, 1, known], &[]);
            reply.expect("the same limits")
        };
        let first = ask(50, known);
        assert_eq!(
            (first.granted.len(), first.opens),
            (0, 31_002_000),
            "{change}"
        );
        // Others come from where this one came from, and it comes again.
        clock += SECOND;
        store.move_to(clock);
        assert_eq!(ask(0, known).opens, 30_002_000);
        clock += 31 * SECOND;
        store.move_to(clock);
        let open = ask(50, first.server);
        assert_eq!(open.granted.len(), 50, "{change}");
        known = open.server;
    }
}

#[test]
fn what_is_no_account_is_none() {
    let store = Store::new(DEFAULT);
    store.put("rubbish");
    assert_eq!(grants(&store, 1).len(), 1);
}

#[test]
fn an_account_begins_on_the_rung_of_the_limits() {
    let mut store = Store::new(DEFAULT);
    store.rung = 2;
    let serial = store.ask("1", 5, &[]).expect("the first");
    assert_eq!((serial.rung, serial.granted.len()), (2, 1));
}

#[test]
fn a_pause_is_tried_after_a_minute_at_most_and_longer_each_time_where_no_time_is_told() {
    let store = Store::new(DEFAULT);
    let day = 86_400 * SECOND;
    let id = grants(&store, 1)[0];
    told(&store, Told::Proven(id, "q", day));
    store.move_to(BEGIN + 60 * SECOND - 1);
    let paused = store.ask("1", 2, &[]).expect("the same limits");
    assert_eq!(
        (paused.granted.len(), paused.paused),
        (0, day - 60 * SECOND + 1)
    );
    store.move_to(BEGIN + 60 * SECOND);
    let tries = grants(&store, 2);
    assert_eq!(tries.len(), 1, "one tries");
    // It hangs: another may try half a minute later.
    store.move_to(BEGIN + 75 * SECOND);
    told(&store, Told::Kept(tries[0]));
    store.move_to(BEGIN + 89 * SECOND);
    store
        .ask("1", 2, &[Told::Kept(tries[0])])
        .expect("the same limits");
    assert!(grants(&store, 2).is_empty());
    store.move_to(BEGIN + 90 * SECOND);
    let tries = grants(&store, 2);
    assert_eq!(tries.len(), 1);
    told(&store, Told::Proven(tries[0], "a", 0));
    let over = store.ask("1", 2, &[]).expect("the same limits");
    assert_eq!((over.paused, over.granted.len()), (0, 2));
    // Without a time: 1, 2, 4 seconds.
    let mut now = BEGIN + 100 * SECOND;
    let mut id = over.granted[0];
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        store.move_to(now);
        told(&store, Told::Proven(id, "q", 0));
        store.move_to(now + seconds * SECOND - 1);
        assert!(grants(&store, 1).is_empty(), "{seconds}");
        now += seconds * SECOND;
        store.move_to(now);
        id = grants(&store, 1)[0];
    }
}

/// Two greedy members, one of which is far away: each gets its part.
#[test]
fn a_member_whose_way_is_long_has_its_turns() {
    let store = Store::new("50 1002000 20000 20040 1 9 10 0");
    let way = [500, 75_000_i64];
    let mut served = [0, 0];
    // When each member's next question, or answer to a request, comes to the store.
    let mut comes: Vec<(i64, usize, Option<i64>)> = vec![(0, 0, None), (0, 1, None)];
    while let Some(at) = (0..comes.len()).min_by_key(|at| comes[*at].0) {
        let (now, who, answered) = comes.swap_remove(at);
        if now > 30 * SECOND {
            break;
        }
        store.move_to(BEGIN + now);
        let name = (who + 1).to_string();
        let event = answered.map(|id| Told::Proven(id, "a", 0));
        let reply = store
            .ask(&name, 20, event.as_slice())
            .expect("the same limits");
        served[who] += reply.granted.len();
        for id in &reply.granted {
            comes.push((now + 2 * way[who] + 20_000, who, Some(*id)));
        }
        if answered.is_none() {
            let wait = if reply.wait < 0 { SECOND } else { reply.wait };
            comes.push((now + wait + 2 * way[who], who, None));
        }
        for (channel, wait) in store.take_told() {
            let whom = if channel.ends_with('1') { 0 } else { 1 };
            comes.retain(|(_, who, answered)| *who != whom || answered.is_some());
            comes.push((now + wait + 2 * way[whom], whom, None));
        }
    }
    let [near, far] = served;
    // One a round trip, which is all that one can have who takes turns.
    assert!(far > 150, "{near} and {far}");
}
