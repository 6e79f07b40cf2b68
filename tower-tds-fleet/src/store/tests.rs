//! The script on a real server, with a clock of the test: beside its twin, and with members of several versions.

#[expect(dead_code, reason = "the faults are for other tests")]
#[path = "../../tests/support/redis_server.rs"]
pub(crate) mod redis_server;
pub(crate) mod twin;

use std::collections::BTreeMap;

use redis::{Connection, RedisResult, Script, cmd};

use self::{
    redis_server::{RedisServer, or_skip},
    twin::{Asked, Division, Three},
};
use super::{DIVISION, reply};

/// A store, and the fleet `test` on it.
pub(crate) struct Store {
    /// Kept, so that it runs.
    _server: RedisServer,
    connection: Connection,
    script: Script,
}

// === impl Store ===

impl Store {
    pub(crate) fn start() -> Option<Self> {
        let server = RedisServer::start()?;
        let clock = "{math.floor(KEYS[2] / 1000), KEYS[2] % 1000 * 1000}";
        Some(Self {
            connection: server.connection(),
            _server: server,
            script: Script::new(&DIVISION.replace("redis.call('TIME')", clock)),
        })
    }

    /// Sends a member's question at this time, in milliseconds of the store's clock. Returns the numbers of the answer, and the
    /// run of the server.
    pub(crate) fn ask(
        &mut self,
        (id, number): (u64, u64),
        rest: &[&str],
        now: u64,
    ) -> RedisResult<(Vec<u64>, String)> {
        let mut asks = self.script.prepare_invoke();
        asks.key(KEY).key(now);
        asks.arg(format!("{id:016x}")).arg(number).arg(rest);
        asks.invoke(&mut self.connection)
    }

    fn set(&mut self, name: &str, value: &str) {
        let mut set = cmd("HSET");
        set.arg(KEY).arg(name).arg(value);
        set.exec(&mut self.connection).unwrap();
    }

    pub(crate) fn fields(&mut self) -> BTreeMap<String, String> {
        cmd("HGETALL").arg(KEY).query(&mut self.connection).unwrap()
    }
}

const KEY: &str = "{test}:shares";

/// The numbers of a random question, in the order of the script.
fn question(rng: &mut fastrand::Rng, last: [u64; 3]) -> Vec<u64> {
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
    let memory = 12_004 + rare(9_000);
    let rest = [unit, 1_002, memory, rare(60_000), rare(20).min(1)];
    let stepped = u64::from(rng.u8(..40) == 0);
    [&held[..], &wanted, &total, &rest, &share, &[stepped]].concat()
}

fn text(numbers: &[u64]) -> String {
    let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
    numbers.join(",")
}

/// Whatever the script grants, its twin grants too, so neither has less on record; what they withhold is the same.
#[test]
fn the_script_and_its_twin_agree() {
    let mut store = or_skip!(Store::start());
    let idle = text(&[0; 18]);
    let (_, run) = store.ask((0, 1), &[&idle, "", ""], 1).unwrap();
    let (mut late, mut grown) = (0, 0);
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut twin = Division::default();
        cmd("DEL").arg(KEY).exec(&mut store.connection).unwrap();
        let members = rng.usize(1..24);
        let mut known = vec![([0; 3], 0_u64); members];
        let (mut now, mut silent) = (1_700_000_000_000, 0);
        for step in 0..200 {
            now += [100, 300, 6_000, 19_000, 90_000][rng.usize(..50).saturating_sub(45)];
            let at = rng.usize(..members);
            let (last, number) = &mut known[at];
            let numbers = question(&mut rng, *last);
            let next = *number + u64::from(rng.u8(..20) != 0);
            let quotas = [1_000, 2_000][usize::from(rng.u8(..50) == 0)];
            let (by, last_run) = match rng.u8(..40) {
                0 => ("another", Some(2)),
                1..10 => ("", None),
                _ => (run.as_str(), Some(RUN)),
            };
            let id = (at as u64, next);
            let answer = store.ask(id, &[&text(&numbers), &quotas.to_string(), by], now);
            let three = |at: usize| -> Three { numbers[at..at + 3].try_into().unwrap() };
            let asked = Asked {
                id: id.0,
                number: next,
                claim: [0, 1, 2].map(|k| numbers[k].max(numbers[14 + k])),
                have: three(14),
                total: three(6),
                hold: numbers[10],
                memory: numbers[11],
                leaves: numbers[13] == 1,
                stepped: numbers[17] == 1,
                quotas,
                last: last_run,
            };
            let name = format!("seed {seed}, step {step}: {asked:?}");
            match (answer, twin.books(&asked, RUN, now)) {
                (Ok((answer, _)), Ok(books)) => {
                    let share = answer[6..9].try_into().unwrap();
                    let granted = twin.settle(&asked, &books, share, RUN, now);
                    assert_eq!(granted, share, "{name}, {books:?}, {twin:?}");
                    silent = silent.max(now + numbers[12]);
                    let until = [silent, books.grows_at].map(|until| until.saturating_sub(now));
                    let times = [&[now], &until[..], &[books.live], &books.frees].concat();
                    assert_eq!(answer[..6], times, "{name}");
                    assert_eq!(
                        answer[9..],
                        [books.total, books.withheld].concat(),
                        "{name}"
                    );
                    let members = store.fields().into_keys();
                    let members = members.filter(|field| field.starts_with("member:"));
                    let known = twin.members.keys().map(|id| format!("member:{id:016x}"));
                    assert!(members.eq(known), "{name}: {twin:?}");
                    grown += u32::from(share[0] > last[0]);
                    (*last, *number) = (share, next);
                }
                (Err(error), Err(code)) => {
                    late += u32::from(code == "LATE");
                    assert!(error.to_string().contains(code), "{name}: {error}");
                }
                (answer, expected) => panic!("{name}: {answer:?} {expected:?}"),
            }
        }
    }
    assert!(late > 50 && grown > 500, "{late} {grown}");
}

/// Number of the server's run, for the twin.
const RUN: u64 = 1;

/// Rolling updates: the hash has numbers and fields of a later version, and members of an earlier
/// one.
#[test]
fn members_of_three_versions_share_a_hash() {
    let mut store = or_skip!(Store::start());
    let numbers = "0,0,0,5,2,2,50,11,60,1,1002,12004,0,0,0,0,0,0";
    let service = "https://data.example.org:443";
    let this = [numbers, "1000", "", "host:1", service];
    let ask = |store: &mut Store, id, rest: &[&str]| {
        let answer = store.ask(id, rest, 1_700_000_000_000);
        answer.map(|(values, _)| values)
    };
    ask(&mut store, (1, 1), &this).unwrap();
    store.set("began", "0");
    let now = ask(&mut store, (1, 2), &this).unwrap()[0];
    let later = format!("3,7,3,4,9,9,9,50,11,60,1,1002,{now},12004,2,{now},\"host:1\",18");
    store.set("member:0000000000000002", &later);
    store.set("later", "than this version");
    // Its wishes of 48, 11 and 58, and one half of the requests and places that are left.
    let answer = ask(&mut store, (1, 3), &this).unwrap();
    // A broken store's reply is malformed.
    assert!(reply(&answer).is_some() && reply(&answer[..14]).is_none());
    assert!(reply(&[u64::MAX; 15]).is_none());
    assert_eq!((answer[3], &answer[6..9]), (2, &[22, 2, 2][..]));
    // One of an earlier version names neither its process nor its service.
    assert_eq!(ask(&mut store, (3, 1), &this[..3]).unwrap()[3], 3);
    let other = [&this[..4], &["http://data.example.org:80"]].concat();
    let error = ask(&mut store, (4, 1), &other).unwrap_err();
    assert!(error.to_string().contains(service), "{error}");
    assert_eq!(ask(&mut store, (1, 4), &this).unwrap()[3], 3);
    // A fleet that is given up expires; without that, the number is negative.
    let _left: u64 = cmd("PTTL").arg(KEY).query(&mut store.connection).unwrap();
}

/// Wishes of a member, and the milliseconds at which it sends questions.
type Asks = (Three, std::ops::Range<u64>);

/// Shares of members with a question every 250 ms, and the times when those without requests got some.
fn divided(store: &mut Store, places: u64, members: &[Asks], lasts: u64) -> String {
    let (mut shares, mut turns) = (vec![[0; 3]; members.len()], String::new());
    cmd("DEL").arg(KEY).exec(&mut store.connection).unwrap();
    for at in (0..lasts).step_by(250) {
        for (id, (wanted, asks)) in members.iter().enumerate() {
            if !asks.contains(&at) {
                continue;
            }
            let rest = [50, places, 60, 1, 1_002, 12_004, 0, 0];
            let numbers = [&shares[id][..], wanted, &rest, &shares[id], &[0]].concat();
            let rest = [&text(&numbers), "1000", ""];
            let answer = store.ask((id as u64, at + 1), &rest, 1_700_000_000_000 + at);
            let before = shares[id][0];
            shares[id] = answer.unwrap().0[6..9].try_into().unwrap();
            if before == 0 && shares[id][0] > 0 {
                turns += &format!(", {id} at {at}");
            }
        }
        store.set("began", "0");
    }
    format!("{shares:?}{turns}")
}

/// The division itself: max-min fair parts, in turns where there are too few places or sockets.
#[test]
fn parts_are_fair_and_shares_change_hands() {
    let mut store = or_skip!(Store::start());
    let (all, few, one, always) = ([60, 20, 50], [5, 1, 2], [9, 1, 1], 0..40_000);
    let three = |wanted| [(); 3].map(|()| (wanted, always.clone()));
    let of = |wanted| (wanted, always.clone());
    let [equal, turns] = [all, few].map(three);
    let idle = [of(all), of([0, 0, 4]), of(few)];
    let new = [of([50, 9, 50]), (all, 8_750..9_000)];
    let withheld = [([1, 1, 60], 0..4_000), of(one), (one, 9_500..40_000)];
    for (places, members, lasts, expected) in [
        (11, &equal[..], 9_000, EQUAL),
        (11, &idle, 9_000, IDLE),
        (2, &turns, 10_000, TURNS),
        (11, &new, 9_000, NEW),
        (11, &withheld, 20_000, WITHHELD),
    ] {
        assert_eq!(divided(&mut store, places, members, lasts), expected);
    }
}

const EQUAL: &str = "[[16, 4, 20], [16, 4, 19], [16, 3, 19]], 0 at 250, 1 at 250, 2 at 250";
const IDLE: &str = "[[43, 10, 50], [0, 0, 4], [5, 1, 2]], 0 at 250, 2 at 250";
/// The third waits until a share was held for four seconds, and then each waits for 2.2.
const TURNS: &str =
    "[[24, 1, 2], [24, 1, 2], [0, 0, 2]], 0 at 250, 1 at 250, 2 at 4250, 1 at 6500, 0 at 8750";
/// Two units are held back for it.
const NEW: &str = "[[48, 11, 50], [2, 0, 1]], 0 at 250, 1 at 8750";
/// One socket is left after the first has died.
const WITHHELD: &str =
    "[[20, 5, 57], [28, 0, 0], [2, 1, 1]], 0 at 250, 1 at 250, 2 at 11750, 1 at 15750, 2 at 19750";
