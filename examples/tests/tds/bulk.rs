//! `tds bulk`: whole files or none, a second run for the rest, and an end when there is no point in going on.

use std::{fmt::Write as _, fs, path::Path, process::Output, time::Duration};

use serde_json::Value;
use tds_sim::{Config, ErrorBody, Quota, RetryAfter, Server};

use crate::{
    Bench, end, err, live, out, output, piped, signal, text,
    upstream::{Upstream, answer, late},
};

impl Bench {
    /// `tds bulk` of these lines.
    fn bulk(&self, lines: &str, more: &[&str]) -> std::process::Command {
        fs::write(self.path("list"), lines).expect("a file");
        let (list, files, report) = (self.path("list"), self.path("files"), self.path("report"));
        let mut arguments = vec!["bulk", "--list", text(&list), "--out", text(&files)];
        arguments.extend(["--report", text(&report)]);
        arguments.extend(more);
        self.tds(&arguments)
    }

    /// The report, whose sums have to be those of the list.
    fn report(&self) -> Value {
        let json = fs::read(self.path("report")).expect("a report");
        let report: Value = serde_json::from_slice(&json).expect("JSON");
        let count = |name: &str| report[name].as_u64().expect("a number");
        let failed = report["failed"].as_object().expect("by kind");
        let failed: u64 = failed.values().filter_map(Value::as_u64).sum();
        let sum = count("ok") + count("skipped") + failed + count("unfinished");
        assert_eq!(sum, count("total"), "{report}");
        let again = report["again"].as_array().expect("a list").len();
        assert_eq!(
            u64::try_from(again),
            Ok(failed + count("unfinished")),
            "{report}"
        );
        report
    }

    fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.path("files")).expect("the folder");
        let names = files.map(|file| file.expect("a file").file_name());
        let mut names: Vec<_> = names
            .map(|name| name.into_string().expect("text"))
            .collect();
        names.retain(|name| name != ".tds.lock");
        names.sort();
        names
    }

    fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.path("files").join(name)).expect("it is there")
    }
}

fn lives(count: u32) -> String {
    (0..count).fold(String::new(), |mut lines, n| {
        writeln!(lines, "/v1/live/bus-{n}").expect("memory");
        lines
    })
}

fn ended(run: &Output, code: i32) {
    assert_eq!(run.status.code(), Some(code), "{}{}", out(run), err(run));
}

#[tokio::test]
async fn files_are_byte_equal_and_targets_go_out_as_they_stand() {
    let bench = Bench::new("bulk-equal", Config::default()).await;
    let odd = "/v1/live/odd?$filter=line%20eq%20'307'&%24top=5";
    let list = format!(
        "# days\n{}\r\n{odd}\n/v1/live/公車\tbus/公車.json\n/v1/live/%E5%85%AC\n\n",
        lives(200)
    );
    let run = output(bench.bulk(&list, &[])).await;
    ended(&run, 0);
    for n in 0..200 {
        let name = format!("bus-{n}");
        assert_eq!(
            bench.file(&format!("v1_live_{name}")),
            live(&name).as_bytes()
        );
    }
    let odd_name = "v1_live_odd_$filter=line%20eq%20_307__%24top=5";
    assert_eq!(bench.file(odd_name), live("odd").as_bytes());
    assert!(
        String::from_utf8(bench.file("bus/公車.json"))
            .expect("text")
            .contains("公車")
    );
    assert!(!bench.files().iter().any(|name| name.contains(".part")));

    let ledger = bench.server.ledger();
    let seen = ledger.summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 203));
    assert_eq!(seen.by_status.keys().copied().collect::<Vec<_>>(), [200]);
    let arrivals = ledger.arrivals();
    for target in [odd, "/v1/live/公車", "/v1/live/%E5%85%AC"] {
        assert!(
            arrivals.iter().any(|arrival| &*arrival.target == target),
            "{target}"
        );
    }
    assert_eq!(bench.report()["ok"], 203);

    // A second run has nothing to do, and one for what is missing does that.
    let run = output(bench.bulk(&list, &[])).await;
    ended(&run, 0);
    assert_eq!(bench.report()["skipped"], 203);
    fs::remove_file(bench.path("files").join("v1_live_bus-7")).expect("it is there");
    ended(&output(bench.bulk(&list, &[])).await, 0);
    let seen = bench.server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 204));
}

#[tokio::test]
async fn a_run_that_was_killed_is_gone_on_with() {
    let bench = Bench::new("bulk-kill", Config::default()).await;
    let list = lives(200);
    let mut run = piped(bench.bulk(&list, &[]));
    bench.seen(|seen| seen.complete >= 80).await;
    run.kill().expect("it runs");
    run.wait().expect("it ends");
    let whole = bench.files();
    for name in whole.iter().filter(|name| !name.contains(".part")) {
        let resource = name.strip_prefix("v1_live_").expect("its name");
        assert_eq!(bench.file(name), live(resource).as_bytes());
    }
    ended(&output(bench.bulk(&list, &[])).await, 0);
    assert_eq!(bench.files().len(), 200, "and no part is left");
    let seen = bench.server.ledger().summary();
    assert!(seen.data_calls <= 200 + 60, "{seen:?}");
    assert_eq!(seen.by_status.keys().copied().collect::<Vec<_>>(), [200]);
    assert_eq!(
        seen.token_posts, 1,
        "the second run had the token of the first"
    );
}

#[tokio::test]
async fn an_interrupt_leaves_whole_files_and_a_report_that_adds_up() {
    let bench = Bench::new("bulk-int", Config::default()).await;
    let run = piped(bench.bulk(&lives(400), &[]));
    bench.seen(|seen| seen.complete >= 60).await;
    signal(&run, "-INT");
    let run = end(run).await;
    ended(&run, 1);
    let report = bench.report();
    assert_eq!(report["ended_by"], "interrupted");
    let whole = bench
        .files()
        .iter()
        .filter(|name| !name.contains(".part"))
        .count();
    // One may have got its name in the moment in which the run was ended.
    let told = report["ok"]
        .as_u64()
        .and_then(|told| usize::try_from(told).ok());
    let told = told.expect("a number");
    assert!((told..=told + 1).contains(&whole), "{told} and {whole}");
    assert!(whole < 400);
}

#[tokio::test]
async fn tokens_that_are_revoked_on_the_way_cost_no_file() {
    for (name, body) in [("text", ErrorBody::Text), ("json", ErrorBody::Json)] {
        let mut config = Config::default();
        config.error_body = body;
        let bench = Bench::new(&format!("bulk-revoke-{name}"), config).await;
        let run = piped(bench.bulk(&lives(120), &[]));
        bench.seen(|seen| seen.complete >= 50).await;
        bench.server.sim().revoke_all();
        ended(&end(run).await, 0);
        assert_eq!(bench.files().len(), 120);
        let seen = bench.server.ledger().summary();
        assert_eq!(seen.token_posts, 2, "{seen:?}");
        assert_eq!(seen.by_status.get(&200), Some(&120));
    }
}

#[tokio::test]
async fn it_ends_when_every_token_is_refused() {
    let bench = Bench::new("bulk-refused", Config::default()).await;
    // Another service's: it knows none of these tokens.
    let mut config = Config::default();
    config.seed = 7;
    let other = Server::start(config).await.expect("free ports");
    let mut run = bench.bulk(&lives(400), &[]);
    run.env("TDS_BASE_URL", other.base_url());
    let run = output(run).await;
    ended(&run, 4);
    assert!(bench.files().is_empty(), "{:?}", bench.files());
    let seen = other.ledger().summary();
    assert!(seen.data_calls < 200, "{seen:?}");
    assert!(bench.report()["unfinished"].as_u64() > Some(0));
}

#[tokio::test]
async fn it_ends_when_the_secret_is_wrong() {
    let bench = Bench::new("bulk-secret", Config::default()).await;
    let mut run = bench.bulk(&lives(400), &[]);
    run.env("TDS_CLIENT_SECRET", "wrong");
    let run = output(run).await;
    ended(&run, 4);
    let seen = bench.server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 0));
    let told = err(&run).matches("refused the credentials").count();
    assert_eq!(told, 1, "one cause is told once: {}", err(&run));
}

#[tokio::test]
async fn a_missing_role_is_told_once_and_the_others_arrive() {
    let mut config = Config::default();
    config.roles = vec!["live".to_owned()];
    let bench = Bench::new("bulk-role", config).await;
    let history: String = (0..10).map(|n| format!("/v1/history/{n}\n")).collect();
    let run = output(bench.bulk(&format!("{history}{}", lives(20)), &[])).await;
    ended(&run, 1);
    assert_eq!(bench.files().len(), 20, "{:?}", bench.files());
    let report = bench.report();
    assert_eq!(report["failed"]["missing_role"], 10);
    assert_eq!(report["again"][0], "/v1/history/0");
    assert_eq!(
        err(&run).matches("lacks the role").count(),
        1,
        "{}",
        err(&run)
    );
    assert_eq!(bench.server.ledger().summary().token_posts, 1);
}

#[tokio::test]
async fn it_ends_when_the_quota_is_gone_however_that_is_said() {
    for told in [RetryAfter::Absent, RetryAfter::Seconds] {
        let mut config = Config::default();
        config.quota = Some(Quota::new(5, Duration::from_secs(86_400)));
        config.retry_after = told;
        let bench = Bench::new(&format!("bulk-quota-{told:?}"), config).await;
        let run = output(bench.bulk(&lives(400), &["--jobs", "5"])).await;
        ended(&run, 3);
        let report = bench.report();
        assert_eq!(report["ok"], 5, "{report}");
        let seen = bench.server.ledger().summary();
        assert!(seen.data_calls <= 5 + 15, "{seen:?}");
    }
}

#[tokio::test]
async fn it_ends_by_each_way_of_saying_that_the_quota_is_gone_for_long() {
    let bench = Bench::new("bulk-told", Config::default()).await;
    for told in [
        "retry-after: 86400",
        "retry-after: Fri, 31 Dec 2099 23:59:59 GMT",
        "ratelimit-remaining: 0\r\nratelimit-reset: 86400",
        "ratelimit: \"day\";r=0;t=86400",
        "x-ratelimit-remaining-day: 0",
    ] {
        let headers = format!("{told}\r\ncontent-length: 0\r\n");
        let upstream = Upstream::start(move |_, _| answer("429 Too Many Requests", &headers, b""));
        let mut run = bench.bulk(&lives(100), &["--jobs", "5"]);
        run.env("TDS_BASE_URL", &upstream.url);
        ended(&output(run).await, 3);
        assert!(
            upstream.heads().len() <= 5 * 3,
            "{told}: {}",
            upstream.heads().len()
        );
        assert_eq!(bench.report()["ok"], 0);
    }
}

#[tokio::test]
async fn a_quota_that_is_always_gone_for_some_seconds_is_asked_for_within_ten() {
    let bench = Bench::new("bulk-always", Config::default()).await;
    let upstream = Upstream::start(|_, _| {
        let headers = "retry-after: 5\r\ncontent-length: 0\r\n";
        answer("429 Too Many Requests", headers, b"")
    });
    let mut run = bench.bulk(&lives(100), &[]);
    run.env("TDS_BASE_URL", &upstream.url);
    ended(&output(run).await, 3);
    // After the first second and the sixth; the next would be the eleventh.
    assert_eq!(upstream.heads().len(), 2);
}

#[tokio::test]
async fn a_small_plan_takes_its_windows_and_all_arrives() {
    let mut config = Config::default();
    config.quota = Some(Quota::new(12, Duration::from_secs(4)));
    config.retry_after = RetryAfter::Seconds;
    let bench = Bench::new("bulk-plan", config).await;
    ended(&output(bench.bulk(&lives(50), &[])).await, 0);
    assert_eq!(bench.report()["ok"], 50);
    let seen = bench.server.ledger().summary();
    // One looks in each window whether it is open, and those that are on their way when it shuts are refused.
    assert_eq!(seen.by_status.get(&200), Some(&50));
}

#[tokio::test]
async fn tokens_that_expire_on_the_way_are_renewed_in_time() {
    let mut config = Config::default();
    config.expires_in = 3;
    let bench = Bench::new("bulk-expiry", config).await;
    ended(&output(bench.bulk(&lives(250), &[])).await, 0);
    assert_eq!(bench.files().len(), 250);
    let seen = bench.server.ledger().summary();
    assert_eq!(seen.by_status.get(&200), Some(&250));
    assert!(seen.token_posts >= 2, "{seen:?}");
}

#[tokio::test]
async fn it_waits_for_the_quota_if_it_is_told_to() {
    let bench = Bench::new("bulk-wait", Config::default()).await;
    let gone = "retry-after: 1\r\nx-ratelimit-remaining-day: 0\r\ncontent-length: 0\r\n";
    let upstream = Upstream::start(move |_, nth| match nth {
        ..6 => answer("429 Too Many Requests", gone, b""),
        _ => answer("200 OK", "content-length: 2\r\n", b"ok"),
    });
    let mut run = bench.bulk("/a\n/b\n", &[]);
    run.env("TDS_BASE_URL", &upstream.url);
    ended(&output(run).await, 3);
    let asked = upstream.heads().len();
    assert!(asked < 6, "it ended: {asked}");

    let mut run = bench.bulk("/a\n/b\n", &["--wait-quota"]);
    run.env("TDS_BASE_URL", &upstream.url);
    ended(&output(run).await, 0);
    assert_eq!(bench.files(), ["a", "b"]);
}

#[tokio::test]
async fn what_was_cut_is_gone_on_with_by_a_range() {
    let bench = Bench::new("bulk-range", Config::default()).await;
    let body: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let whole = body.clone();
    let upstream = Upstream::start(move |head, nth| {
        let start = head
            .split_once("range: bytes=")
            .and_then(|(_, range)| range.split_once('-'));
        let start = start.map_or(0, |(start, _)| start.parse().expect("a number"));
        let (left, total) = (&whole[start..], whole.len());
        let status = if start > 0 {
            "206 Partial Content"
        } else {
            "200 OK"
        };
        let headers = format!(
            "etag: \"v1\"\r\ncontent-length: {}\r\ncontent-range: bytes {start}-{}/{total}\r\n",
            left.len(),
            total - 1
        );
        // The first three break off, each after a quarter.
        let sent = if nth < 3 { &left[..100_000] } else { left };
        answer(status, &headers, sent)
    });
    let mut run = bench.bulk("/big\n", &[]);
    run.env("TDS_BASE_URL", &upstream.url);
    ended(&output(run).await, 0);
    assert!(bench.file("big") == body, "byte-equal");
    assert_eq!(bench.files(), ["big"], "no part and no tag is left");
    let heads = upstream.heads();
    assert!(!heads[0].contains("\r\nrange:"), "{heads:?}");
    for (head, start) in heads[1..].iter().zip([100_000, 200_000, 300_000]) {
        assert!(
            head.contains(&format!("\r\nrange: bytes={start}-\r\n")),
            "{head}"
        );
        assert!(head.contains("\r\nif-range: \"v1\"\r\n"), "{head}");
    }
    assert_eq!(heads.len(), 4);
}

#[tokio::test]
async fn a_part_of_another_file_is_not_gone_on_with() {
    // By 200 with all of it, by a refusal of the range, and by a range that was not asked for.
    for (name, status, headers) in [
        ("changed", "200 OK", "etag: \"v2\"\r\ncontent-length: 3\r\n"),
        (
            "refused",
            "416 Range Not Satisfiable",
            "content-range: bytes */3\r\ncontent-length: 3\r\n",
        ),
        ("weak", "200 OK", "etag: W/\"v1\"\r\ncontent-length: 3\r\n"),
        (
            "shorter",
            "206 Partial Content",
            "etag: \"v1\"\r\ncontent-length: 3\r\ncontent-range: bytes 5-7/9\r\n",
        ),
        (
            "mixed",
            "206 Partial Content",
            "etag: \"v2\"\r\ncontent-length: 3\r\ncontent-range: bytes 5-7/8\r\n",
        ),
    ] {
        let bench = Bench::new(&format!("bulk-{name}"), Config::default()).await;
        let upstream = Upstream::start(move |head, nth| {
            if nth == 0 {
                let tag = if name == "weak" { "W/\"v1\"" } else { "\"v1\"" };
                let cut = format!("etag: {tag}\r\ncontent-length: 9\r\n");
                return answer("200 OK", &cut, b"12345");
            }
            if head.contains("\r\nrange: ") {
                assert_ne!(name, "weak", "a weak tag is of no bytes");
                return answer(status, headers, b"abc");
            }
            answer("200 OK", "content-length: 3\r\n", b"abc")
        });
        let mut run = bench.bulk("/x\n", &[]);
        run.env("TDS_BASE_URL", &upstream.url);
        ended(&output(run).await, 0);
        assert_eq!(bench.file("x"), b"abc", "{name}");
        assert_eq!(bench.files(), ["x"], "{name}");
    }
}

#[tokio::test]
async fn a_file_arrives_after_as_many_416_as_the_client_tries() {
    let bench = Bench::new("bulk-416", Config::default()).await;
    let upstream = Upstream::start(|_, nth| match nth {
        ..3 => answer("416 Range Not Satisfiable", "content-length: 0\r\n", b""),
        _ => answer("200 OK", "content-length: 2\r\n", b"ok"),
    });
    let mut run = bench.bulk("/x\n", &[]);
    run.env("TDS_BASE_URL", &upstream.url);
    ended(&output(run).await, 0);
    assert_eq!(bench.file("x"), b"ok");
}

#[tokio::test]
async fn bodies_are_compressed_on_their_way_and_sockets_stay_within_the_limit() {
    for (name, more) in [("plain", &[][..]), ("compress", &["--compress"])] {
        let bench = Bench::new(&format!("bulk-{name}"), Config::default()).await;
        let list: String = (0..70)
            .map(|n| format!("/v1/history/{n}?bytes=200000&rate=200000\n"))
            .collect();
        ended(&output(bench.bulk(&list, more)).await, 0);
        let first = bench.file("v1_history_0_bytes=200000_rate=200000");
        assert_eq!(first.len(), 200_000);
        for n in 1..70 {
            let other = bench.file(&format!("v1_history_{n}_bytes=200000_rate=200000"));
            assert!(other == first, "{name} {n}");
        }
        let seen = bench.server.ledger().summary();
        assert!(seen.peak_sockets <= 60, "{seen:?}");
        assert_eq!(seen.by_status.keys().copied().collect::<Vec<_>>(), [200]);
    }
}

#[tokio::test]
async fn an_unreachable_service_is_an_exit_code_of_its_own() {
    let bench = Bench::new("bulk-nobody", Config::default()).await;
    let mut run = bench.bulk("/a\n/b\n", &[]);
    run.env("TDS_BASE_URL", "http://127.0.0.1:1");
    let run = output(run).await;
    ended(&run, 5);
    assert_eq!(bench.report()["failed"]["connect"], 2);
    assert_eq!(bench.report()["retries"], 0, "nobody was asked");
}

#[tokio::test]
async fn a_full_disk_ends_it_and_leaves_nothing_under_a_name() {
    let bench = Bench::new("bulk-full", Config::default()).await;
    let files = bench.path("files");
    fs::create_dir_all(&files).expect("a folder");
    for n in 0..40 {
        let part = files.join(format!("v1_live_bus-{n}.part"));
        std::os::unix::fs::symlink("/dev/full", part).expect("Linux has it");
    }
    let run = output(bench.bulk(&lives(40), &["--jobs", "2"])).await;
    ended(&run, 1);
    assert!(err(&run).contains("No space left"), "{}", err(&run));
    assert!(bench.files().iter().all(|name| name.ends_with(".part")));
    let seen = bench.server.ledger().summary();
    assert!(seen.data_calls < 10, "it ended: {seen:?}");
}

#[tokio::test]
async fn the_report_and_the_code_are_there_though_nobody_can_read_the_line() {
    let bench = Bench::new("bulk-unsaid", Config::default()).await;
    for (secret, code) in [(bench.server.client_secret(), 1), ("wrong", 4)] {
        let mut run = bench.bulk("/v1/live/a\n", &[]);
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        run.stdout(full.expect("Linux has it"));
        run.stderr(std::process::Stdio::piped());
        run.env("TDS_CLIENT_SECRET", secret);
        run.env("TDS_STATE_DIR", bench.path(secret));
        let run = end(run.spawn().expect("it starts")).await;
        ended(&run, code);
        assert!(err(&run).contains("standard output"), "{}", err(&run));
        let ok = bench.report()["ok"].as_u64();
        assert_eq!(ok, Some(u64::from(code == 1)));
        fs::remove_dir_all(bench.path("files")).expect("it was made");
        fs::remove_file(bench.path("report")).expect("it was made");
    }
}

/// With the number of a process, and all else that stands behind a name while it is not whole, 255 bytes.
const LONGEST_STEP: usize = 237;

#[tokio::test]
async fn the_longest_names_have_room_for_what_stands_behind_them() {
    let bench = Bench::new("bulk-long", Config::default()).await;
    let name = "x".repeat(LONGEST_STEP);
    let list = format!("/v1/live/a\t{name}\n/v1/live/b\td/{name}\n");
    ended(&output(bench.bulk(&list, &[])).await, 0);
    let (list, feeds) = (bench.path("list"), bench.path("feeds"));
    let poll = [
        "poll",
        "--list",
        text(&list),
        "--out",
        text(&feeds),
        "--rounds",
        "1",
    ];
    ended(&bench.run(&poll).await, 0);
    assert!(feeds.join(&name).exists());
}

#[tokio::test]
async fn lists_and_folders_that_cannot_be_used_are_told_before_anything_is_sent() {
    let bench = Bench::new("bulk-usage", Config::default()).await;
    let long = format!("/a\t{}\n", "x".repeat(LONGEST_STEP + 1));
    for (list, told) in [
        (&*long, "too long"),
        ("/a\tx\n/b\tx/y/z\n", "line 1 is written to x"),
        ("/b\tx/y/z\n/a\tx/y\n", "line 2 is written to x/y"),
        ("/a\t../x\n", "leaves the folder"),
        ("/a\t/etc/x\n", "leaves the folder"),
        ("/a\tb/../../x\n", "leaves the folder"),
        ("/a\t./x\n", "leaves the folder"),
        ("/a\tb//x\n", "leaves the folder"),
        ("/a\t\n", "leaves the folder"),
        ("/a\tb\\x\n", "backslashes"),
        ("/a\tx.part\n", "not yet whole"),
        ("/a\t.tds.lock\n", "not yet whole"),
        ("/a\td/.tds.lock\n", "not yet whole"),
        ("/a\t.tds.lock/y\n", "not yet whole"),
        ("/a\tx.part/y\n", "not yet whole"),
        ("/a\tx\n\n/b\tx\n", "line 3: line 1 is written to x, too"),
        ("/a b\n", "%20"),
        ("v1\n", "slash"),
        ("# nothing\n", "no line"),
        ("", "no line"),
    ] {
        let run = output(bench.bulk(list, &[])).await;
        ended(&run, 2);
        assert!(err(&run).contains(told), "{list:?}: {}", err(&run));
    }
    let run = output(bench.bulk("/a\n", &["--jobs", "0"])).await;
    ended(&run, 2);
    for folder in ["/proc/none", "/dev/null"] {
        let list = bench.path("list");
        let run = bench
            .run(&["bulk", "--list", text(&list), "--out", folder])
            .await;
        ended(&run, 2);
        assert!(err(&run).contains(folder), "{}", err(&run));
    }
    let files = bench.path("files");
    let run = bench
        .run(&["bulk", "--list", "/none", "--out", text(&files)])
        .await;
    ended(&run, 2);
    assert!(
        err(&run).contains("a path and query a line"),
        "{}",
        err(&run)
    );
    let list = bench.path("list");
    fs::write(&list, "/a\n").expect("a file");
    for report in ["/none/report.json", "/"] {
        let arguments = ["bulk", "--list", text(&list), "--out", text(&files)];
        let arguments = [&arguments[..], &["--report", report]].concat();
        let run = bench.run(&arguments).await;
        ended(&run, 2);
        assert!(err(&run).contains(report), "{}", err(&run));
    }
    let lock = fs::File::create(files_made(&files).join(".tds.lock")).expect("a file");
    lock.lock().expect("nobody has it");
    let run = output(bench.bulk("/a\n", &[])).await;
    ended(&run, 2);
    assert!(err(&run).contains("another run"), "{}", err(&run));
    let seen = bench.server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (0, 0));
}

#[tokio::test]
async fn a_folder_that_is_closed_costs_its_own_files_and_no_others() {
    use std::os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    };

    let bench = Bench::new("bulk-closed", Config::default()).await;
    let list = format!("/v1/live/a\tclosed/a\n/v1/live/b\tclosed/b\n{}", lives(30));
    let mut run = bench.bulk(&list, &["--jobs", "1"]);
    let closed = files_made(&bench.path("files")).join("closed");
    fs::create_dir(&closed).expect("a folder");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).expect("it is ours");
    if fs::write(closed.join("x"), "").is_ok() {
        // Whoever may do anything is not stopped by it, so that the job is somebody else's.
        fs::remove_file(closed.join("x")).expect("it is there");
        for mine in [&bench.folder, &bench.path("files"), &closed] {
            chown(mine, Some(NOBODY), Some(NOBODY)).expect("it may");
        }
        run.uid(NOBODY).gid(NOBODY);
    }
    let run = output(run).await;
    ended(&run, 1);
    let report = bench.report();
    assert_eq!(
        (&report["ok"], &report["failed"]["disk"]),
        (&30.into(), &2.into())
    );
    assert_eq!(report["again"][0], "/v1/live/a\tclosed/a");
    assert_eq!(err(&run).matches("denied").count(), 1, "{}", err(&run));
}

#[tokio::test]
async fn a_short_429_beside_slow_heads_is_not_the_end_of_the_quota() {
    let bench = Bench::new("bulk-slow-429", Config::default()).await;
    let upstream = Upstream::start(|_, nth| {
        if nth == 0 {
            let headers = "retry-after: 1\r\ncontent-length: 0\r\n";
            return answer("429 Too Many Requests", headers, b"");
        }
        late(answer("200 OK", "content-length: 2\r\n", b"ok"), 11)
    });
    let mut run = bench.bulk(&lives(5), &[]);
    run.env("TDS_BASE_URL", &upstream.url);
    ended(&output(run).await, 0);
    assert_eq!(bench.report()["ok"], 5);
    let heads = upstream.heads().len();
    assert_eq!(heads, 6, "one was refused, and all were served");
}

#[tokio::test]
async fn a_token_that_is_refused_while_its_successor_is_late_does_not_end_it() {
    let bench = Bench::new("bulk-late-token", Config::default()).await;
    let run = piped(bench.bulk(&lives(120), &[]));
    bench.seen(|seen| seen.complete >= 50).await;
    let mut faults = tds_sim::Faults::default();
    faults.token.push("503".parse().expect("a fault"));
    let sim = bench.server.sim();
    sim.set_faults(faults);
    sim.revoke_all();
    bench
        .seen(|seen| seen.token_posts >= 2 && seen.by_status.get(&401) >= Some(&3))
        .await;
    sim.set_faults(tds_sim::Faults::default());
    let run = end(run).await;
    ended(&run, 0);
    assert_eq!(bench.files().len(), 120);
}

/// Has no rights of its own anywhere.
const NOBODY: u32 = 65_534;

fn files_made(files: &Path) -> &Path {
    fs::create_dir_all(files).expect("a folder");
    files
}
