//! One token for all runs, and a turn for each.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tds_sim::Config;
use tokio::task::JoinSet;

use crate::{Bench, err, out, output, serving::Serving, text};

/// The file with the turn of the last start.
fn stamp(bench: &Bench) -> PathBuf {
    fs::read_dir(bench.path("state"))
        .expect("it was made")
        .map(|file| file.expect("a file").path())
        .find(|path| text(path).contains("/start-"))
        .expect("the stamp")
}

fn turn(stamp: &Path) -> SystemTime {
    let turn = fs::metadata(stamp).and_then(|stamp| stamp.modified());
    turn.expect("it is there")
}

#[tokio::test]
async fn starts_in_a_row_and_forty_at_once_request_one_token() {
    let mut config = Config::default();
    // Each start waits for its turn and then sends. On a machine that stalls, late requests come together.
    config.rate = 1_000;
    let bench = Bench::new("get-token", config).await;
    for _ in 0..4 {
        let run = bench.run(&["get", "/v1/live/bus?$top=5&n=%24"]).await;
        assert!(run.status.success(), "{}", err(&run));
        assert!(out(&run).starts_with(r#"{"name":"bus""#), "{}", out(&run));
        assert_eq!(err(&run), "");
    }
    let before = turn(&stamp(&bench));
    let mut runs = JoinSet::new();
    for _ in 0..40 {
        runs.spawn(output(bench.tds(&["get", "/v1/live/bus"])));
    }
    for run in runs.join_all().await {
        assert!(run.status.success(), "{}", err(&run));
    }
    let ledger = bench.server.ledger();
    let seen = ledger.summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 44));
    assert_eq!(seen.by_status, [(200, 44)].into());
    assert!(turn(&stamp(&bench)) >= before + Duration::from_millis(40 * 25));
    assert_eq!(&*ledger.arrivals()[0].target, "/v1/live/bus?$top=5&n=%24");
}

/// Where the job stalls, late requests come together, so this compares their turns.
#[tokio::test]
async fn starts_of_a_small_quota_take_turns_at_its_rate() {
    let bench = Bench::new("get-small", Config::default()).await;
    let get = ["get", "/v1/live/bus", "--rate", "5/2s"];
    assert!(bench.run(&get).await.status.success());
    let before = turn(&stamp(&bench));
    let mut runs = JoinSet::new();
    for _ in 0..8 {
        runs.spawn(output(bench.tds(&get)));
    }
    for run in runs.join_all().await {
        assert!(run.status.success(), "{}", err(&run));
    }
    assert!(turn(&stamp(&bench)) >= before + Duration::from_secs(2) * 8 / 5);
    assert_eq!(bench.server.ledger().summary().data_calls, 9);
}

// Reproducer for starts that each waited a second, the interval of the limits, before their call.
#[tokio::test]
async fn start_does_not_wait_for_an_interval_of_the_limits() {
    let bench = Bench::new("get-soon", Config::default()).await;
    for _ in 0..6 {
        assert!(bench.run(&["get", "/v1/live/bus"]).await.status.success());
    }
    // Only the shortest gap counts, because a busy machine may delay some runs.
    let arrivals = bench.server.ledger().arrivals();
    let gaps = arrivals.windows(2).map(|pair| pair[1].at - pair[0].at);
    let shortest = gaps.min().expect("six calls");
    assert!(shortest < Duration::from_secs(1), "{shortest:?}");
}

#[tokio::test]
async fn start_waits_for_earlier_starts() {
    let bench = Bench::new("get-turn", Config::default()).await;
    assert!(bench.run(&["get", "/v1/live/bus"]).await.status.success());
    let stamp = stamp(&bench);
    let set = |time| {
        let file = fs::OpenOptions::new().write(true).open(&stamp);
        let set = file.and_then(|file| file.set_modified(time));
        set.expect("it is ours");
    };
    // Sets the last turn as if two hundred runs were before this one, which starts within their time on a busy machine as well.
    let last = now() + Duration::from_secs(5);
    set(last);
    assert!(bench.run(&["get", "/v1/live/bus"]).await.status.success());
    assert!(now() > last, "it went before them");
    let next = turn(&stamp);
    assert_eq!(next, last + Duration::from_millis(25));

    // The clock was set back by a day: the job does not wait for that.
    set(now() + Duration::from_secs(86_400));
    let get_soon = ["get", "/v1/live/bus", "--deadline", "1m"];
    let run = bench.run(&get_soon).await;
    assert!(run.status.success(), "{}", err(&run));
    assert!(turn(&stamp) <= now());
}

#[tokio::test]
async fn deadline_bounds_the_wait_for_locked_files() {
    let bench = Bench::new("get-lock", Config::default()).await;
    assert!(bench.run(&["get", "/v1/live/bus"]).await.status.success());
    // The files are locked by a process that hangs. If only the token's lock is held, no new token is needed.
    for (held, deadline, code, calls) in [("/start-", "3s", 5, 1), ("/token-", "1m", 0, 2)] {
        let files = fs::read_dir(bench.path("state")).expect("it was made");
        let paths = files.map(|file| file.expect("a file").path());
        let locks = paths.filter(|path| text(path).contains(held)).map(|path| {
            let file = fs::OpenOptions::new().read(true).write(true).open(path);
            let file = file.expect("it is ours");
            file.lock().expect("nobody has it");
            file
        });
        let locks: Vec<_> = locks.collect();
        assert!(!locks.is_empty());
        let run = bench
            .run(&["get", "/v1/live/bus", "--deadline", deadline])
            .await;
        assert_eq!(run.status.code(), Some(code), "{held}: {}", err(&run));
        assert_eq!(
            err(&run).contains("another process"),
            code == 5,
            "{}",
            err(&run)
        );
        let seen = bench.server.ledger().summary();
        assert_eq!((seen.token_posts, seen.data_calls), (1, calls), "{held}");
    }
    // Without a token, and with its lock held by another process, the deadline ends the job as
    // well.
    let lock = fs::read_dir(bench.path("state")).expect("it was made");
    let lock = lock
        .map(|file| file.expect("a file").path())
        .find(|path| text(path).ends_with(".lock"))
        .expect("the token's");
    fs::remove_file(text(&lock).trim_end_matches(".lock")).expect("the token");
    let lock = fs::File::open(lock).expect("it is ours");
    lock.lock().expect("nobody has it");
    let run = bench
        .run(&["get", "/v1/live/bus", "--deadline", "2s"])
        .await;
    assert_eq!(run.status.code(), Some(5), "{}", err(&run));
    assert_eq!(bench.server.ledger().summary().data_calls, 2);
}

#[expect(
    clippy::disallowed_methods,
    reason = "stamps are of the clock that processes share"
)]
fn now() -> SystemTime {
    SystemTime::now()
}

// Reproducer: the second run waited for ninety minutes, slept out its deadline, and then asked; other
// jobs counted from zero.
#[tokio::test]
async fn a_daily_quota_is_counted_across_the_runs_of_all_jobs_and_no_turn_takes_long() {
    let bench = Bench::new("get-daily", Config::default()).await;
    let list = bench.path("list");
    fs::write(&list, "/v1/live/bus-{1..3}\n").expect("a file");
    let (list, files) = (text(&list), bench.path("files"));
    let rate = ["--rate", "8/1d"];
    // The token takes one permit, and is requested once more by `check`.
    for (job, code, calls) in [
        (&["get", "/v1/live/bus", "--deadline", "20s"][..], 0, 1),
        (&["bulk", "--list", list, "--out", text(&files)], 0, 4),
        (&["check", "/v1/live/bus"], 0, 5),
        (&["poll", "--list", list, "--rounds", "2"], 3, 6),
        (&["get", "/v1/live/bus", "--deadline", "20s"], 3, 6),
        (&["check", "/v1/live/bus"], 3, 6),
        (
            &[
                "bulk",
                "--list",
                list,
                "--out",
                text(&files),
                "--accept",
                "a/b",
            ],
            3,
            6,
        ),
    ] {
        let run = bench.run(&[job, &rate].concat()).await;
        assert_eq!(run.status.code(), Some(code), "{job:?}: {}", err(&run));
        let is_told = err(&run).contains("that of --rate") && err(&run).contains("in 23 h");
        assert_eq!(is_told, code == 3, "{job:?}: {}", err(&run));
        let seen = bench.server.ledger().summary();
        // A feed that is refused ends the job, and perhaps the call of another one.
        let are_sent = calls - u64::from(code == 3)..=calls;
        assert!(are_sent.contains(&seen.data_calls), "{job:?}: {seen:?}");
    }
    let backend = ["backend", "--listen", "127.0.0.1:0"];
    let backend = Serving::start(bench.tds(&[&backend[..], &rate].concat()));
    assert_eq!(backend.get("/v1/live/bus").await.status, 503);
    assert!(bench.server.ledger().summary().data_calls <= 6);
    // A larger quota leaves more, and a shorter time passes.
    let run = bench.run(&["get", "/v1/live/bus", "--rate", "20/1d"]).await;
    assert_eq!(run.status.code(), Some(0), "{}", err(&run));
    let soon = ["get", "/v1/live/bus", "--rate", "2/5s", "--deadline", "1m"];
    for _ in 0..3 {
        let run = bench.run(&soon).await;
        assert_eq!(run.status.code(), Some(0), "{}", err(&run));
    }
}
