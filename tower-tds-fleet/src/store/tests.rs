//! Compares the script with its twin, on a real server.

#[expect(dead_code, reason = "the faults are for other tests")]
#[path = "../../tests/support/redis_server.rs"]
mod redis_server;
pub(crate) mod twin;

use redis::{Connection, RedisResult, Script, cmd};

use self::{
    redis_server::RedisServer,
    twin::{Asked, Division, Refused, run},
};
use super::{DIVISION, reply};

/// A store, and the fleet `test` on it.
struct Store {
    server: RedisServer,
    connection: Connection,
    script: Script,
}

// === impl Store ===

impl Store {
    fn start() -> Option<Self> {
        let server = RedisServer::start()?;
        Some(Self {
            connection: server.connection(),
            server,
            script: Script::new(DIVISION),
        })
    }

    fn run_id(&self) -> String {
        let info: String = cmd("INFO")
            .arg("server")
            .query(&mut self.server.connection())
            .unwrap();
        let run = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        run.unwrap().to_owned()
    }

    /// Asks for a member, with the further arguments that it gives.
    fn ask(&mut self, (id, number): (u64, u64), rest: &[&str]) -> RedisResult<Vec<u64>> {
        let mut asks = self.script.prepare_invoke();
        asks.key(KEY)
            .arg(format!("{id:016x}"))
            .arg(number)
            .arg(rest);
        let answer: RedisResult<(Vec<u64>, String)> = asks.invoke(&mut self.connection);
        answer.map(|(values, _)| values)
    }

    fn set(&mut self, name: &str, value: &str) {
        let mut set = cmd("HSET");
        set.arg(KEY).arg(name).arg(value);
        set.exec(&mut self.connection).unwrap();
    }

    fn fields(&mut self) -> Vec<(String, String)> {
        cmd("HGETALL").arg(KEY).query(&mut self.connection).unwrap()
    }

    fn hash(&mut self) -> Division {
        Division::from_fields(&self.fields())
    }

    /// Moves each time of the hash into the past, by a different amount.
    fn age(&mut self, rng: &mut fastrand::Rng) {
        for (name, value) in self.fields() {
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
            self.set(&name, &aged);
        }
    }
}

const KEY: &str = "{test}:shares";

/// The numbers of a random question, in the order of the script.
fn question(rng: &mut fastrand::Rng, last: [u64; 3]) -> String {
    let idle = rng.u8(..4) == 0;
    let mut upto = |last| rng.u64(..=last);
    let (held, share) = (last.map(&mut upto), last.map(upto));
    let mut wanted = [60, 20, 70].map(|most| rng.u64(..most));
    if idle {
        (wanted[0], wanted[1]) = (0, 0);
    }
    let mut total = [50, 11, 60];
    if rng.u8(..8) == 0 {
        total = [rng.u64(1..60), rng.u64(1..20), rng.u64(1..70)];
    }
    let unit = if rng.u8(..10) == 0 { rng.u64(1..6) } else { 1 };
    let mut rare = |most: u64| match rng.u8(..20) {
        0 => rng.u64(..most),
        _ => 0,
    };
    let rest = [unit, 1_002, 12_004, rare(60_000), rare(20).min(1)];
    let stepped = u64::from(rng.u8(..40) == 0);
    let numbers = [&held[..], &wanted, &total, &rest, &share, &[stepped]].concat();
    let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
    numbers.join(",")
}

#[test]
fn the_script_and_its_twin_agree() {
    let Some(mut store) = Store::start() else {
        return;
    };
    let by = store.run_id();
    let (mut late, mut grown) = (0, 0);
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut twin = Division::default();
        cmd("DEL").arg(KEY).exec(&mut store.connection).unwrap();
        let members = rng.usize(1..24);
        let mut known = vec![([0; 3], 0_u64); members];
        for step in 0..200 {
            if step == 0 || rng.u8(..40) == 0 {
                // The store's records are old, and the times of members differ.
                store.age(&mut rng);
                twin = store.hash();
            }
            let at = rng.usize(..members);
            let (last, number) = &mut known[at];
            let numbers = question(&mut rng, *last);
            let next = *number + u64::from(rng.u8(..20) != 0);
            let quotas = if rng.u8(..50) == 0 { "2000" } else { "1000" };
            let last_run = match rng.u8(..40) {
                0 => "another",
                1..10 => "",
                _ => &by,
            };
            let id = (at as u64, next);
            let answer = store.ask(id, &[&numbers, quotas, last_run]);
            let now = answer
                .as_ref()
                .map_or_else(|_| now(&mut store), |answer| answer[0]);
            let answered_by = Some(run(last_run)).filter(|_| !last_run.is_empty());
            let asked = Asked::of(id, &numbers, quotas, answered_by);
            let expected = twin.ask(&asked, run(&by), now);
            let name = format!("seed {seed}, step {step}: {asked:?}");
            match (answer, expected) {
                (Ok(answer), Ok(expected)) => {
                    assert_eq!(answer, expected, "{name}, {twin:?}");
                    grown += u32::from(answer[6] > last[0]);
                    *last = answer[6..9].try_into().unwrap();
                    *number = next;
                    assert_eq!(store.hash(), twin, "{name}");
                }
                (Err(error), Err(why)) => {
                    late += u32::from(why == Refused::Late);
                    let code = if why == Refused::Late {
                        "LATE"
                    } else {
                        "QUOTAS"
                    };
                    assert!(error.to_string().contains(code), "{name}: {error}");
                }
                (answer, expected) => panic!("{name}: {answer:?} {expected:?}"),
            }
        }
    }
    assert!(late > 50 && grown > 500, "{late} {grown}");
}

fn now(store: &mut Store) -> u64 {
    let (seconds, micros): (u64, u64) = cmd("TIME").query(&mut store.connection).unwrap();
    seconds * 1_000 + micros / 1_000
}

/// Rolling updates: the hash has numbers and fields of a later version, and members of an earlier
/// one.
#[test]
fn members_of_three_versions_share_a_hash() {
    let Some(mut store) = Store::start() else {
        return;
    };
    let numbers = "0,0,0,5,2,2,50,11,60,1,1002,12004,0,0,0,0,0,0";
    let service = "https://data.example.org:443";
    let this = [numbers, "1000", "", "host:1", service];
    store.ask((1, 1), &this).unwrap();
    store.set("began", "0");
    let now = store.ask((1, 2), &this).unwrap()[0];
    let later = format!("3,7,3,4,9,9,9,50,11,60,1,1002,{now},12004,2,{now},\"host:1\",18");
    store.set("member:0000000000000002", &later);
    store.set("later", "than this version");
    // What each wants of 48, 11 and 58, and one half of the requests and places that are left.
    let answer = store.ask((1, 3), &this).unwrap();
    assert_eq!((answer[3], &answer[6..9]), (2, &[22, 2, 2][..]));
    // One of an earlier version names neither its process nor its service.
    assert_eq!(store.ask((3, 1), &this[..3]).unwrap()[3], 3);
    let other = [&this[..4], &["http://data.example.org:80"]].concat();
    let error = store.ask((4, 1), &other).unwrap_err();
    assert!(error.to_string().contains(service), "{error}");
    assert_eq!(store.ask((1, 4), &this).unwrap()[3], 3);
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
        let mut values: Vec<_> = (0..15).map(|_| number()).collect();
        values.truncate(if rng.bool() { 15 } else { rng.usize(..15) });
        read += usize::from(reply(&values).is_some());
    }
    assert!(read > 1_000, "{read}");
}
