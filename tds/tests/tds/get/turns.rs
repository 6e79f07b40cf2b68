//! One token for all runs, and a turn for each.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::task::JoinSet;

use crate::{Bench, ended, err, out, output, says, waits};

impl Bench {
    /// The file of the state whose name has this part.
    fn state(&self, part: &str) -> PathBuf {
        let files = fs::read_dir(self.path("state")).expect("it was made");
        let mut paths = files.map(|file| file.expect("a file").path());
        let is_it = |path: &PathBuf| path.to_string_lossy().contains(part);
        paths.find(is_it).expect("it is there")
    }

    /// The last turn that was taken.
    fn turn(&self) -> Duration {
        let turns = fs::read_to_string(self.state("/start-")).expect("text");
        let turns = turns.lines().map(|turn| turn.parse().expect("a number"));
        Duration::from_millis(turns.max().expect("a turn"))
    }

    /// Runs these jobs at once, and expects that each succeeds.
    async fn all_at_once(&self, line: &str, count: usize) {
        let mut runs = JoinSet::new();
        for _ in 0..count {
            runs.spawn(output(self.tds(line)));
        }
        for run in runs.join_all().await {
            ended(&run, 0);
        }
    }
}

#[tokio::test]
async fn starts_in_a_row_and_forty_at_once_request_one_token() {
    // Each start waits for its turn and then sends. On a machine that stalls, late requests come together.
    let bench = Bench::with(|config| config.rate = 1_000).await;
    for _ in 0..4 {
        let run = bench.ends(0, "get -q /v1/live/bus?$top=5&n=%24").await;
        assert!(out(&run).starts_with(r#"{"name":"bus""#), "{}", out(&run));
        assert_eq!(err(&run), "");
    }
    let before = bench.turn();
    bench.all_at_once("get /v1/live/bus", 40).await;
    assert_eq!(bench.asked(), (1, 44));
    assert_eq!(bench.summary().by_status, [(200, 44)].into());
    assert!(bench.turn() >= before + Duration::from_millis(40 * 25));
    let first = &bench.server.ledger().arrivals()[0];
    assert_eq!(&*first.target, "/v1/live/bus?$top=5&n=%24");
}

/// Where the job stalls, late requests come together, so this compares their turns.
#[tokio::test]
async fn starts_of_a_small_quota_take_turns_at_its_rate() {
    let bench = Bench::new().await;
    let get = "get /v1/live/bus --rate 5/2s";
    bench.ends(0, get).await;
    let before = bench.turn();
    bench.all_at_once(get, 8).await;
    assert!(bench.turn() >= before + Duration::from_secs(2) * 8 / 5);
    assert_eq!(bench.asked().1, 9);
}

// Reproducer for starts that each waited a second, the interval of the limits, before their call.
#[tokio::test]
async fn start_does_not_wait_for_an_interval_of_the_limits() {
    let bench = Bench::new().await;
    for _ in 0..6 {
        bench.ends(0, "get /v1/live/bus").await;
    }
    // Only the shortest gap counts, because a busy machine may delay some runs.
    let arrivals = bench.server.ledger().arrivals();
    let gaps = arrivals.windows(2).map(|pair| pair[1].at - pair[0].at);
    let shortest = gaps.min().expect("six calls");
    assert!(shortest < Duration::from_secs(1), "{shortest:?}");
}

#[tokio::test]
async fn start_waits_for_earlier_starts() {
    let bench = Bench::new().await;
    bench.ends(0, "get /v1/live/bus").await;
    let set = |turn: Duration| {
        // What is no turn is left out.
        let turn = [b"\xc3\n", format!("{}\n", turn.as_millis()).as_bytes()].concat();
        fs::write(bench.state("/start-"), turn).expect("it is ours");
    };
    // Sets the last turn as if two hundred runs were before this one, which starts within their time on a busy machine as well.
    let last = now() + Duration::from_secs(5);
    set(last);
    bench.ends(0, "get /v1/live/bus").await;
    assert!(now() > last, "it went before them");
    let gap = bench.turn().as_millis() - last.as_millis();
    assert_eq!(gap, 25);

    // The clock was set back by a day: the job does not wait for that.
    set(now() + Duration::from_secs(86_400));
    bench.ends(0, "get /v1/live/bus --deadline 1m").await;
    assert!(bench.turn() <= now());
}

#[tokio::test]
async fn deadline_bounds_the_wait_for_locked_files() {
    let bench = Bench::new().await;
    bench.ends(0, "get /v1/live/bus").await;
    let locked = |part: &str| {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(bench.state(part));
        let file = file.expect("it is ours");
        file.lock().expect("nobody has it");
        file
    };
    // The files are locked by a process that hangs.
    let held = locked("/start-");
    let run = bench.ends(5, "get /v1/live/bus --deadline 3s").await;
    says(&run, "another process");
    assert_eq!(bench.asked(), (1, 1));
    drop(held);
    // If only the token's lock is held, no new token is needed. Without a token, the deadline ends the job as well.
    let _held = locked(".lock");
    bench.ends(0, "get /v1/live/bus --deadline 1m").await;
    let lock = bench.state(".lock");
    fs::remove_file(lock.with_extension("")).expect("the token");
    bench.ends(5, "get /v1/live/bus --deadline 2s").await;
    assert_eq!(bench.asked(), (1, 2));
}

#[expect(
    clippy::disallowed_methods,
    reason = "turns are of the clock that processes share"
)]
fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("it is later")
}

// Reproducer: the second run waited for ninety minutes, slept out its deadline, and was sent then; other
// jobs counted from zero.
#[tokio::test]
async fn a_daily_quota_is_counted_across_the_runs_of_all_jobs_and_no_turn_takes_long() {
    let bench = Bench::new().await;
    bench.list("/v1/live/bus-{1..3}\n");
    // The token takes one permit, and is requested once more by `check`.
    for (job, code, calls) in [
        ("get /v1/live/bus --deadline 20s", 0, 1),
        ("bulk --list list --out files", 0, 4),
        ("check /v1/live/bus", 0, 5),
        ("poll --list list --rounds 2", 3, 6),
        ("get /v1/live/bus --deadline 20s", 3, 6),
        ("check /v1/live/bus", 3, 6),
        ("bulk --list list --out files --accept a/b", 3, 6),
    ] {
        let run = bench.ends(code, &format!("{job} --rate 8/1d")).await;
        let is_told = err(&run).contains("that of --rate") && err(&run).contains("in 23 h");
        assert_eq!(is_told, code == 3, "{job}: {}", err(&run));
        let (_, sent) = bench.asked();
        // A feed that is refused ends the job, and perhaps the call of another one.
        assert!(
            (calls - u64::from(code == 3)..=calls).contains(&sent),
            "{job}: {sent}"
        );
    }
    let backend = bench.serve("--rate 8/1d");
    assert_eq!(backend.get("/v1/live/bus").await.status, 503);
    assert!(bench.asked().1 <= 6);
    // A larger quota leaves more, and a shorter time passes.
    bench.ends(0, "get /v1/live/bus --rate 20/1d").await;
    let mut told = String::new();
    for _ in 0..3 {
        let get = "get /v1/live/bus --rate 2/5s --deadline 1m";
        told += &waits(&bench.ends(0, get).await);
    }
    assert!(told.contains("waiting for its turn"), "{told}");
    // Because of them a job of many calls waits at its start.
    let run = bench
        .ends(0, "bulk --list list --out other --rate 9/3s")
        .await;
    let waits = waits(&run);
    assert!(waits.contains("waiting for the limits"), "{waits}");
}

// Reproducer: a start forgot what a job of many calls had counted, because its own turns kept that limit.
#[tokio::test]
async fn a_limit_of_minutes_is_counted_by_all_jobs_however_much_it_allows() {
    let bench = Bench::with(|config| config.rate = 1_000).await;
    bench.list("/v1/live/bus-{1..157}\n");
    let limit = "--rate 160/2m --deadline 20s";
    bench
        .ends(0, "bulk --list list --out files --rate 160/2m")
        .await;
    let mut codes = Vec::new();
    for _ in 0..4 {
        let run = bench.run(&format!("get /v1/live/bus {limit}")).await;
        codes.extend(run.status.code());
    }
    assert_eq!((codes[0], codes[3]), (0, 3));
    let (_, sent) = bench.asked();
    assert!(sent <= 160, "{sent}");
}
