//! The output of a job, quiet, with each step, in colour and as JSON, and the program's other output.

use serde_json::{Value, json};

use crate::{Bench, by, end, ended, err, events, line, out, output, piped, says, skipped, tds};

#[tokio::test]
async fn quiet_job_prints_what_failed_and_a_verbose_one_each_step() {
    let bench = Bench::new().await;
    bench.list("/v1/live/bus\n");
    let bulk = "bulk --list list --out files";
    let run = bench.ends(0, &format!("{bulk} -q")).await;
    assert_eq!((out(&run), err(&run)), (String::new(), String::new()));
    let run = bench.ends(0, bulk).await;
    let sums = out(&run);
    assert!(sums.starts_with("1 file: 0 ok, 1 skipped, "), "{sums}");
    let run = bench.ends(0, &format!("{bulk} --dry-run")).await;
    says(&run, "tds: 1 file: 0 to fetch");
    let run = bench.ends(0, &format!("{bulk} --dry-run --quiet")).await;
    assert_eq!(err(&run), "");

    bench.list("/v1/live/bus\n/nothing\n");
    let run = bench.ends(1, &format!("-q {bulk}")).await;
    let line = err(&run);
    assert!(line.starts_with("tds: 1 file failed: "), "{line}");
    let sums = "2 files: 0 ok, 1 skipped, 1 failed";
    assert!(out(&run).starts_with(sums), "{}", out(&run));

    says(&bench.ends(1, "get /nothing -v").await, "DEBUG");
    for clash in ["-q -v", "-v --log=json"] {
        bench.ends(2, &format!("get /nothing {clash}")).await;
    }
}

#[tokio::test]
async fn terminal_has_colours_unless_no_color_is_set() {
    if skipped("script") {
        return;
    }
    let bench = Bench::new().await;
    for no_color in [None, Some("1")] {
        let mut plain = bench.tds("get /nothing");
        plain.env_remove("NO_COLOR").env("TERM", "xterm");
        plain.envs(no_color.map(|value| ("NO_COLOR", value)));
        let line = format!("exec {}", line(&plain));
        let run = end(piped(by("script", &["-qec", &line, "/dev/null"], &plain))).await;
        ended(&run, 1);
        let has_colour = out(&run).contains("\u{1b}[31m");
        assert_eq!(has_colour, no_color.is_none(), "{:?}", out(&run));
    }
    // A pipe has no colours.
    let run = bench.run("get /nothing").await;
    assert!(!err(&run).contains('\u{1b}'), "{}", err(&run));
}

#[tokio::test]
async fn get_check_and_poll_print_lines_of_json() {
    let bench = Bench::new().await;
    let run = bench.ends(0, "get -q /v1/live/bus --json").await;
    assert_eq!(run.stdout.len(), 128);
    let whole = json!({ "event": "end", "exit": 0, "kind": null, "error": null });
    assert_eq!(events(&err(&run)), std::slice::from_ref(&whole));
    let away = "get /v1/live/bus --deadline 1s --base-url http://127.0.0.1:1";
    for (line, code, kind) in [
        ("get /nothing", 1, json!("not_found")),
        (away, 5, json!("connect")),
        ("get /v1/live/bus --rate x", 2, Value::Null),
    ] {
        let run = bench.ends(code, &format!("{line} --json")).await;
        let [end] = &events(&err(&run))[..] else {
            unreachable!("one line: {}", err(&run))
        };
        assert_eq!((&end["exit"], &end["kind"]), (&code.into(), &kind), "{end}");
        assert!(end["error"].is_string() && run.stdout.is_empty());
    }

    let run = bench.ends(0, "check /v1/live/bus --json").await;
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

    bench.list("/v1/live/bus\n/nothing\n");
    let run = bench
        .ends(1, "poll --list list --rounds 2 --every 1s --json")
        .await;
    let poll = events(&out(&run));
    let changes = poll.iter().filter(|event| event["event"] == "change");
    let change = json!({ "event": "change", "url": "/v1/live/bus", "bytes": 128 });
    assert_eq!(changes.collect::<Vec<_>>(), [&change]);
    assert!(
        poll.iter().any(|event| event["kind"] == "not_found"),
        "{poll:?}"
    );
    assert_eq!(poll.last().expect("the end")["exit"], 1);
}

#[tokio::test]
async fn too_few_file_descriptors_are_named_and_end_the_job() {
    let bench = Bench::new().await;
    bench.list("/v1/history/{1..60}?bytes=60000&rate=30000\n");
    for (job, limit) in [
        ("bulk --list list --out files", 24),
        ("get /v1/live/bus", 9),
    ] {
        let plain = bench.tds(job);
        // Descriptors that these tests were started with would count as well.
        let closed = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-";
        let line = format!("{closed}; ulimit -n {limit}; exec {}", line(&plain));
        let run = output(by("sh", &["-c", &line], &plain)).await;
        ended(&run, 1);
        says(&run, "too few file descriptors (ulimit -n)");
        assert!(!err(&run).contains("network"), "{}", err(&run));
    }
}

#[tokio::test]
async fn completions_and_the_manual_are_printed_whatever_the_settings_are() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let mut run = tds(&format!("completions {shell}"));
        run.env("TDS_RAT", "5/1s");
        let run = output(run).await;
        ended(&run, 0);
        for word in ["bulk", "wait-outage", "fleet-name"] {
            assert!(out(&run).contains(word), "{shell}: {word}");
        }
    }
    let line = format!(
        "source <({} completions bash); COMP_WORDS=(tds bulk --wait-q); COMP_CWORD=2; _tds tds --wait-q bulk; echo ${{COMPREPLY[*]}}",
        env!("CARGO_BIN_EXE_tds")
    );
    if !skipped("bash") {
        let run = output(by("bash", &["-c", &line], &tds(""))).await;
        assert_eq!(out(&run), "--wait-quota\n", "{}", err(&run));
    }
    let manual = out(&output(tds("man")).await);
    for title in [".TH tds 1", ".TH tds-bulk 1", ".TH tds-check 1"] {
        assert_eq!(manual.matches(title).count(), 1, "{title}");
    }
    assert!(manual.contains("fleet\\-name") && manual.contains("Exit codes"));
}
