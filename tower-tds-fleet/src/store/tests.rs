//! Compares the script with its model, on a real server.

pub(crate) mod model;
#[expect(dead_code, reason = "the faults are for other tests")]
#[path = "../../tests/support/redis_server.rs"]
mod redis_server;

use redis::{Script, cmd};

use self::{
    model::{Division, Refused},
    redis_server::RedisServer,
};
use super::{DIVISION, reply};

/// A random question of a random member: `[claim, wanted, total; 3 each], unit, hold, memory,
/// silence, pause, leaves, share, stepped`.
fn question(rng: &mut fastrand::Rng, last: [u64; 3]) -> Vec<u64> {
    let idle = rng.u8(..4) == 0;
    let claim = last.map(|last| rng.u64(..=last));
    let mut wanted = [60, 20, 70].map(|most| rng.u64(..most));
    if idle {
        (wanted[0], wanted[1]) = (0, 0);
    }
    let mut total = [50, 11, 60];
    if rng.u8(..8) == 0 {
        total = [rng.u64(1..60), rng.u64(1..20), rng.u64(1..70)];
    }
    let unit = if rng.u8(..10) == 0 { rng.u64(1..6) } else { 1 };
    let mut rare = |most: u64| {
        if rng.u8(..20) == 0 {
            rng.u64(..most)
        } else {
            0
        }
    };
    let rest = [
        unit,
        1_002,
        12_004,
        rare(1_000),
        rare(60_000),
        rare(20).min(1),
    ];
    let share = claim.map(|claim| rng.u64(..=claim));
    let numbers = [claim, wanted, total].concat().into_iter();
    let stepped = u64::from(rng.u8(..40) == 0);
    numbers.chain(rest).chain(share).chain([stepped]).collect()
}

#[test]
fn store_script_agrees_with_its_model() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let mut connection = server.connection();
    let script = Script::new(DIVISION);
    let info: String = cmd("INFO").arg("server").query(&mut connection).unwrap();
    let run = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    let run = run.unwrap().to_owned();
    let (mut late, mut grown) = (0, 0);
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut model = Division::default();
        let key = format!("{{test-{seed}}}:shares");
        let members = rng.usize(1..24);
        let mut known = vec![([0; 3], 0_u64); members];
        let ask_server = |connection: &mut redis::Connection,
                          id: &str,
                          number: u64,
                          asked: &[u64],
                          quotas: &str,
                          last: &str| {
            let numbers: Vec<_> = asked.iter().map(u64::to_string).collect();
            let mut asks = script.prepare_invoke();
            asks.key(&key)
                .arg(id)
                .arg(number)
                .arg(numbers.join(","))
                .arg(quotas)
                .arg(last);
            let answer: redis::RedisResult<(Vec<u64>, String)> = asks.invoke(connection);
            answer
        };
        for step in 0..200 {
            if step == 0 || rng.u8(..40) == 0 {
                // The store's records are old, and the times of members differ.
                age(&mut connection, &key, &mut rng);
                model = read(&mut connection, &key);
            }
            let at = rng.usize(..members);
            let (last, number) = &mut known[at];
            let is_late = rng.u8(..20) == 0;
            let asked = question(&mut rng, *last);
            let next = if is_late { *number } else { *number + 1 };
            let quotas = if rng.u8(..50) == 0 { "2000" } else { "1000" };
            let id = format!("{at:016x}");
            let last_run = match rng.u8(..40) {
                0 => "another",
                1..10 => "",
                _ => &run,
            };
            let answer = ask_server(&mut connection, &id, next, &asked, quotas, last_run);
            let answer = answer.map(|(answer, by)| {
                assert_eq!(by, run);
                answer
            });
            let now = match &answer {
                Ok(answer) => answer[0],
                Err(_) => {
                    let (seconds, micros): (u64, u64) = cmd("TIME").query(&mut connection).unwrap();
                    seconds * 1_000 + micros / 1_000
                }
            };
            let expected = model.ask(&id, next, &asked, quotas, now, (&run, last_run));
            match (answer, expected) {
                (Ok(answer), Ok(expected)) => {
                    assert_eq!(
                        answer, expected,
                        "seed {seed}, step {step}: {asked:?}, {model:?}"
                    );
                    grown += u32::from(answer[6] > last[0]);
                    *last = [answer[6], answer[7], answer[8]];
                    *number = next;
                    assert_eq!(
                        read(&mut connection, &key),
                        model,
                        "seed {seed}, step {step}"
                    );
                }
                (Err(error), Err(Refused::Late)) => {
                    late += 1;
                    assert!(error.to_string().contains("LATE"), "{error}");
                }
                (Err(error), Err(Refused::Quotas)) => {
                    assert!(error.to_string().contains("QUOTAS"), "{error}");
                }
                (answer, expected) => panic!("seed {seed}, step {step}: {answer:?} {expected:?}"),
            }
        }
    }
    assert!(late > 50 && grown > 500, "{late} {grown}");
}

/// Moves each time of the hash into the past, by a different amount.
fn age(connection: &mut redis::Connection, key: &str, rng: &mut fastrand::Rng) {
    let fields: Vec<(String, String)> = cmd("HGETALL").arg(key).query(connection).unwrap();
    for (name, value) in fields {
        let by = [0, 1_000, 3_000, 6_000, 19_000, 90_000][rng.usize(..6)];
        let aged = if name.starts_with("member:") {
            let mut numbers: Vec<_> = value.split(',').map(str::to_owned).collect();
            for at in [12, 15] {
                numbers[at] = (numbers[at].parse::<u64>().unwrap() - by).to_string();
            }
            numbers.join(",")
        } else if name == "began" {
            (value.parse::<u64>().unwrap() - 60_000).to_string()
        } else {
            continue;
        };
        cmd("HSET")
            .arg(key)
            .arg(name)
            .arg(aged)
            .exec(connection)
            .unwrap();
    }
}

/// Reads the hash into the model.
fn read(connection: &mut redis::Connection, key: &str) -> Division {
    let fields: Vec<(String, String)> = cmd("HGETALL").arg(key).query(connection).unwrap();
    Division::from_fields(&fields)
}

/// A rolling update: a member of the next version adds numbers and fields.
#[test]
fn the_script_reads_the_hash_of_a_later_version() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let mut connection = server.connection();
    let script = Script::new(DIVISION);
    let ask = |id: &str, number: u64| {
        let mut asks = script.prepare_invoke();
        asks.key("{test}:shares").arg(id).arg(number);
        asks.arg("0,0,0,5,2,2,50,11,60,1,1002,12004,0,0,0,0,0,0,0")
            .arg("1000")
            .arg("");
        let answer: (Vec<u64>, String) = asks.invoke(&mut server.connection()).unwrap();
        answer.0
    };
    ask("0000000000000001", 1);
    let mut change = |name: &str, value: &str| {
        let mut set = cmd("HSET");
        set.arg("{test}:shares").arg(name).arg(value);
        set.exec(&mut connection).unwrap();
    };
    change("began", "0");
    let now = ask("0000000000000001", 2)[0];
    let record = format!("3,7,3,4,9,9,9,50,11,60,1,1002,{now},12004,2,{now},\"host:1\",18");
    change("member:0000000000000002", &record);
    change("later", "than this version");
    let answer = ask("0000000000000001", 3);
    // The share is what the other one leaves of 48, 10 and 58, and no more than is fair.
    assert_eq!(answer[4..6], [2, 2], "members, active");
    assert_eq!(answer[12..15], [7, 3, 4], "taken by the other");
}

/// A rolling update from the version before: its script ignores what this one appends, and this one
/// reads what that one wrote.
#[test]
fn members_of_this_version_and_the_one_before_share_a_hash() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let mut connection = server.connection();
    let scripts = [include_str!("tests/earlier.lua"), DIVISION].map(Script::new);
    let mut set = cmd("HSET");
    let info: String = cmd("INFO").arg("server").query(&mut connection).unwrap();
    let run = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    let known = ["run", run.unwrap(), "began", "0", "quotas", "1000"];
    set.arg("{test}:shares").arg(&known);
    set.exec(&mut connection).unwrap();
    let mut shares = [[0; 3]; 4];
    for number in 1..20 {
        for member in 0..4 {
            let share = shares[member];
            let [requests, places, sockets] = share;
            let share_text = format!("{requests},{places},{sockets}");
            let numbers = format!("{share_text},50,11,20,50,11,60,1,1002,12004,0,0,0,{share_text}");
            let mut asks = scripts[member % 2].prepare_invoke();
            asks.key("{test}:shares").arg(format!("{member:016x}"));
            asks.arg(number).arg(numbers).arg("1000").arg("");
            let answer: (Vec<u64>, String) = asks.arg("host:1").invoke(&mut connection).unwrap();
            shares[member] = answer.0[6..9].try_into().unwrap();
            let sum = |k: usize| shares.iter().map(|share| share[k]).sum::<u64>();
            let sums = [sum(0), sum(1), sum(2)];
            assert!(sums[0] <= 50 && sums[1] <= 11 && sums[2] <= 60, "{sums:?}");
        }
    }
    assert!(shares.iter().all(|share| share[0] >= 10), "{shares:?}");
    let hash = read(&mut connection, "{test}:shares");
    assert_eq!(hash.members(), 4);
}

/// A store of another program, or a broken one, may reply anything.
#[test]
fn reply_with_arbitrary_numbers_causes_no_panic() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut read = 0;
    for _ in 0..100_000 {
        let large = [0, 1, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX];
        let mut number = || match rng.usize(..20) {
            0 => large[rng.usize(..large.len())],
            _ => rng.u64(..=u64::from(u32::MAX)),
        };
        let mut values: Vec<_> = (0..23).map(|_| number()).collect();
        values.truncate(if rng.bool() { 23 } else { rng.usize(..23) });
        read += usize::from(reply(&values).is_some());
    }
    assert!(read > 1_000, "{read}");
}
