//! The examples as their users run them: what they print, and what the service saw.

#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

use std::{
    env,
    process::{Command, Output},
};

// Runs the example's own tests, because cargo runs those only if you name the example.
#[path = "../unit_test.rs"]
#[expect(dead_code, reason = "its program is run as the others are")]
mod unit_test;

/// Runs an example. `cargo test` builds it beside the tests, unless you select one by `--test`.
fn run(name: &str) -> Output {
    let tests = env::current_exe().expect("a path");
    let folder = tests.ancestors().nth(2).expect("the folder of the profile");
    let program = folder
        .join("examples")
        .join(format!("{name}{}", env::consts::EXE_SUFFIX));
    let run = Command::new(program)
        .output()
        .expect("cargo test has built it");
    assert!(run.status.success(), "{run:?}");
    run
}

fn out(name: &str) -> String {
    String::from_utf8(run(name).stdout).expect("text")
}

/// Returns the number before these words.
fn number(out: &str, words: &str) -> u32 {
    let before = out.split(words).next().unwrap_or_default();
    let number = before.split_whitespace().next_back().unwrap_or_default();
    number.parse().expect(out)
}

#[test]
fn one_call_takes_one_token() {
    let out = out("one_call");
    assert!(out.starts_with("{\"name\":\"bus\""), "{out}");
    assert!(
        out.ends_with("\nthe service saw 1 token request and 1 call\n"),
        "{out}"
    );
}

#[test]
fn json_is_sent_encoded_and_read_into_a_type() {
    let out = out("json");
    assert!(out.starts_with("bus is on time\nmalformed: "), "{out}");
    let target = "/v1/live/bus?$filter=stop%20eq%20'Z%C3%BCrich%20%26%20Umgebung'\n";
    assert!(
        out.contains(&format!("the service saw GET {target}")),
        "{out}"
    );
}

#[test]
fn two_hundred_calls_at_once_are_within_the_limits() {
    let out = out("many_calls");
    assert!(out.starts_with("200 answered, 0 failed\n"), "{out}");
    assert!(number(&out, " calls in a second") <= 50, "{out}");
    assert!(number(&out, " sockets") <= 60, "{out}");
    assert!(
        out.ends_with(", 1 token request, and answered {200: 200}\n"),
        "{out}"
    );
}

#[test]
fn download_shows_its_progress_and_is_whole() {
    let run = run("download");
    let progress = String::from_utf8_lossy(&run.stderr);
    assert!(progress.split('\r').count() > 10, "{progress}");
    assert!(
        progress.ends_with("\r8000000 of 8000000 bytes\n"),
        "{progress}"
    );
    let out = String::from_utf8_lossy(&run.stdout);
    assert_eq!(out, "8000000 bytes in timetable\nthe service saw 1 call\n");
}

#[test]
fn metrics_are_what_the_service_saw() {
    let out = out("metrics");
    let metric = |metric: &str| out.lines().any(|line| line == metric);
    assert!(
        metric("tds_calls_total{kind=\"success\",client=\"timetable\"} 12"),
        "{out}"
    );
    assert!(
        metric("tds_calls_total{kind=\"not_found\",client=\"timetable\"} 1"),
        "{out}"
    );
    // Every fourth answer is a 503, also to the last call.
    assert!(
        out.ends_with("\nthe service answered {200: 12, 404: 1, 503: 4}\n"),
        "{out}"
    );
    assert!(
        metric("tds_attempts_total{kind=\"unavailable\",client=\"timetable\"} 4"),
        "{out}"
    );
    assert!(
        out.contains("tds_token_life_seconds{client=\"timetable\"} 86"),
        "{out}"
    );
}

#[test]
fn function_with_a_unit_test_calls_the_service() {
    let out = out("unit_test");
    let saw = "the service answered {200: 1, 404: 1}\n";
    assert_eq!(out, format!("307: a bus\nno/such/line: no bus\n{saw}"));
}

#[test]
fn own_stack_and_token_alone_make_three_calls_with_one_token() {
    for name in ["own_stack", "token_only"] {
        let out = out(name);
        assert!(out.starts_with("bus: 128 bytes\n"), "{name}: {out}");
        let saw = "\nthe service saw 3 calls and 1 token request\n";
        assert!(out.ends_with(saw), "{name}: {out}");
    }
}

#[test]
fn own_stack_calls_over_https() {
    let out = out("own_stack_https");
    assert!(out.starts_with("{\"name\":\"bus\""), "{out}");
    assert!(
        out.ends_with("\nthe service saw 1 call and 1 token request\n"),
        "{out}"
    );
}

#[test]
fn limits_alone_keep_120_calls_at_once_within_the_limits() {
    let out = out("limits_only");
    assert!(
        out.starts_with("120 permits granted\nthe service saw 120 calls, "),
        "{out}"
    );
    assert!(number(&out, " in a second") <= 50, "{out}");
    assert!(number(&out, " sockets") <= 60, "{out}");
    assert!(out.ends_with(" and answered {200: 120}\n"), "{out}");
}

#[test]
fn errors_alone_retry_what_helps_and_name_the_rest() {
    let out = out("errors_only");
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(
        lines[..2],
        ["/v1/live/tram: attempt 1", "/v1/live/tram: attempt 2"]
    );
    assert!(
        lines[2].starts_with("/v1/live/metro: unavailable, "),
        "{out}"
    );
    assert!(
        lines[3].starts_with("/v1/no/such/line: not_found, "),
        "{out}"
    );
    assert!(
        lines[4].starts_with("/v1/live/rail: invalid_token, "),
        "{out}"
    );
    let metro = "the service answered /v1/live/metro with 503";
    assert_eq!(
        lines.iter().filter(|line| **line == metro).count(),
        3,
        "{out}"
    );
    assert_eq!(out.matches(" with 404\n").count(), 1, "{out}");
    assert_eq!(out.matches(" with 401\n").count(), 2, "{out}");
}

#[test]
#[ignore = "a new store waits 17 s"]
fn fleet_of_two_has_one_token_and_one_rate() {
    let out = out("fleet_of_two");
    if out.starts_with("SKIPPED") {
        eprint!("{out}");
        return;
    }
    assert!(
        out.contains("\nthe service saw 120 calls and 1 token request, at most "),
        "{out}"
    );
    assert!(number(&out, " calls in a second") <= 50, "{out}");
}
