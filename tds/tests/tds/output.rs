//! The output of a job, quiet, with each step, in colour and as JSON, and the program's other output.

use std::{fs, process::Output};

use serde_json::{Value, json};
use tds_sim::Config;

use crate::{Bench, by, end, err, out, output, piped, skipped, tds, text};

/// The events of these lines.
fn events(lines: &str) -> Vec<Value> {
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// The output of a job on a terminal.
async fn on_a_terminal(bench: &Bench, arguments: &[&str], no_color: bool) -> Output {
    let mut plain = bench.tds(arguments);
    plain.env_remove("NO_COLOR").env("TERM", "xterm");
    plain.envs(no_color.then_some(("NO_COLOR", "1")));
    let line = format!("exec {} {}", env!("CARGO_BIN_EXE_tds"), arguments.join(" "));
    end(piped(by("script", &["-qec", &line, "/dev/null"], &plain))).await
}

#[tokio::test]
async fn quiet_job_prints_what_failed_and_a_verbose_one_each_step() {
    let bench = Bench::new("output-quiet", Config::default()).await;
    let (list, files) = (bench.path("list"), bench.path("files"));
    fs::write(&list, "/v1/live/bus\n").expect("a file");
    let bulk = ["bulk", "--list", text(&list), "--out", text(&files)];
    let run = bench.run(&[&bulk[..], &["-q"]].concat()).await;
    assert_eq!((out(&run), err(&run)), (String::new(), String::new()));
    let run = bench.run(&bulk).await;
    assert!(
        out(&run).starts_with("1 file: 0 ok, 1 skipped, "),
        "{}",
        out(&run)
    );
    let run = bench.run(&[&bulk[..], &["--dry-run"]].concat()).await;
    assert!(
        err(&run).contains("tds: 1 file: 0 to fetch"),
        "{}",
        err(&run)
    );
    let run = bench
        .run(&[&bulk[..], &["--dry-run", "--quiet"]].concat())
        .await;
    assert_eq!(err(&run), "");

    fs::write(&list, "/v1/live/bus\n/nothing\n").expect("a file");
    let run = bench.run(&[&["-q"], &bulk[..]].concat()).await;
    assert_eq!(run.status.code(), Some(1));
    assert!(
        err(&run).starts_with("tds: 1 file failed: "),
        "{}",
        err(&run)
    );
    assert!(
        out(&run).starts_with("2 files: 0 ok, 1 skipped, 1 failed"),
        "{}",
        out(&run)
    );

    let run = bench.run(&["get", "/nothing", "-v"]).await;
    assert!(err(&run).contains("DEBUG"), "{}", err(&run));
    for clash in [["-q", "-v"], ["-v", "--log=json"]] {
        let run = bench
            .run(&[&["get", "/nothing"], &clash[..]].concat())
            .await;
        assert_eq!(run.status.code(), Some(2), "{}", err(&run));
    }
}

#[tokio::test]
async fn terminal_has_colours_unless_no_color_is_set() {
    if skipped("script") {
        return;
    }
    let bench = Bench::new("output-colour", Config::default()).await;
    for (no_color, has) in [(false, true), (true, false)] {
        let run = on_a_terminal(&bench, &["get", "/nothing"], no_color).await;
        assert_eq!(run.status.code(), Some(1), "{}", out(&run));
        assert_eq!(out(&run).contains("\u{1b}[31m"), has, "{:?}", out(&run));
    }
    // A pipe has no colours.
    let run = bench.run(&["get", "/nothing"]).await;
    assert!(!err(&run).contains('\u{1b}'), "{}", err(&run));
}

#[tokio::test]
async fn get_check_and_poll_print_lines_of_json() {
    let bench = Bench::new("output-json", Config::default()).await;
    let run = bench.run(&["get", "/v1/live/bus", "--json"]).await;
    assert_eq!(run.stdout.len(), 128);
    let whole = json!({ "event": "end", "exit": 0, "kind": null, "error": null });
    assert_eq!(events(&err(&run)), std::slice::from_ref(&whole));
    for (arguments, code, kind) in [
        (&["get", "/nothing"][..], 1, json!("not_found")),
        (
            &[
                "get",
                "/v1/live/bus",
                "--deadline",
                "1s",
                "--base-url",
                "http://127.0.0.1:1",
            ],
            5,
            json!("connect"),
        ),
        (&["get", "/v1/live/bus", "--rate", "x"], 2, Value::Null),
    ] {
        let run = bench.run(&[arguments, &["--json"]].concat()).await;
        assert_eq!(run.status.code(), Some(code), "{}", err(&run));
        let [end] = &events(&err(&run))[..] else {
            unreachable!("one line: {}", err(&run))
        };
        assert_eq!((&end["exit"], &end["kind"]), (&code.into(), &kind), "{end}");
        assert!(end["error"].is_string() && run.stdout.is_empty());
    }

    let run = bench.run(&["check", "/v1/live/bus", "--json"]).await;
    assert!(!out(&run).contains(bench.server.client_secret()));
    let check = events(&out(&run));
    let of = |kind: &'static str| check.iter().filter(move |event| event["event"] == kind);
    let rate =
        json!({ "event": "setting", "name": "TDS_RATE", "value": "50/1s", "source": "default" });
    assert!(of("setting").any(|event| *event == rate), "{check:?}");
    assert_eq!(of("proxy").count(), 2);
    assert!(of("token").all(|event| event["seconds"].as_u64() > Some(60)));
    assert!(of("data").all(|event| event["bytes"] == 128));
    assert_eq!(check.last(), Some(&whole));

    let list = bench.path("list");
    fs::write(&list, "/v1/live/bus\n/nothing\n").expect("a file");
    let run = bench
        .run(&[
            "poll",
            "--list",
            text(&list),
            "--rounds",
            "2",
            "--every",
            "1s",
            "--json",
        ])
        .await;
    let poll = events(&out(&run));
    let changes = poll.iter().filter(|event| event["event"] == "change");
    let change = json!({ "event": "change", "url": "/v1/live/bus", "bytes": 128 });
    assert_eq!(changes.collect::<Vec<_>>(), [&change]);
    let failed = poll.iter().filter(|event| event["kind"] == "not_found");
    assert!(failed.count() > 0, "{poll:?}");
    assert_eq!(poll.last().expect("the end")["exit"], 1);
}

#[tokio::test]
async fn too_few_file_descriptors_are_named_and_end_the_job() {
    let bench = Bench::new("output-files", Config::default()).await;
    let (list, files) = (bench.path("list"), bench.path("files"));
    fs::write(&list, "/v1/history/{1..60}?bytes=60000&rate=30000\n").expect("a file");
    let bulk = bench.tds(&["bulk", "--list", text(&list), "--out", text(&files)]);
    let get = bench.tds(&["get", "/v1/live/bus"]);
    for (plain, limit) in [(bulk, 24), (get, 9)] {
        let words: Vec<_> = plain
            .get_args()
            .map(|word| word.to_str().expect("text"))
            .collect();
        // Descriptors that these tests were started with would count as well.
        let line = format!(
            "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n {limit}; exec {} {}",
            env!("CARGO_BIN_EXE_tds"),
            words.join(" ")
        );
        let run = output(by("sh", &["-c", &line], &plain)).await;
        assert_eq!(run.status.code(), Some(1), "{}", err(&run));
        assert!(
            err(&run).contains("too few file descriptors (ulimit -n)"),
            "{}",
            err(&run)
        );
        assert!(!err(&run).contains("network"), "{}", err(&run));
    }
}

#[tokio::test]
async fn completions_and_the_manual_are_printed_whatever_the_settings_are() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let mut run = tds(&["completions", shell]);
        run.env("TDS_RAT", "5/1s");
        let run = output(run).await;
        assert_eq!(run.status.code(), Some(0), "{}", err(&run));
        for word in ["bulk", "wait-outage", "fleet-name"] {
            assert!(out(&run).contains(word), "{shell}: {word}");
        }
    }
    let line = format!(
        "source <({} completions bash); COMP_WORDS=(tds bulk --wait-q); COMP_CWORD=2; _tds tds --wait-q bulk; echo ${{COMPREPLY[*]}}",
        env!("CARGO_BIN_EXE_tds")
    );
    if !skipped("bash") {
        let run = output(by("bash", &["-c", &line], &tds(&[]))).await;
        assert_eq!(out(&run), "--wait-quota\n", "{}", err(&run));
    }
    let manual = out(&output(tds(&["man"])).await);
    for title in [".TH tds 1", ".TH tds-bulk 1", ".TH tds-check 1"] {
        assert_eq!(manual.matches(title).count(), 1, "{title}");
    }
    assert!(manual.contains("fleet\\-name") && manual.contains("Exit codes"));
}
