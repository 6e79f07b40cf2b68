//! The examples as their users run them.

use std::{env, process::Command};

/// Runs an example, which `cargo test` has built beside the tests, and returns its output.
fn run(name: &str) -> String {
    let tests = env::current_exe().expect("a path");
    let folder = tests.ancestors().nth(2).expect("the folder of the profile");
    let program = folder
        .join("examples")
        .join(format!("{name}{}", env::consts::EXE_SUFFIX));
    let run = Command::new(program)
        .output()
        .expect("cargo test has built it");
    assert!(run.status.success(), "{run:?}");
    String::from_utf8(run.stdout).expect("text")
}

#[test]
fn proxy_of_axum_passes_answers_and_refusals_on() {
    let out = run("axum_proxy");
    assert!(
        out.contains("/v1/live/bus: 200 OK, {\"name\":\"bus\""),
        "{out}"
    );
    assert!(out.contains("/v1/no/such/line: 404 Not Found, "), "{out}");
    assert!(
        out.contains("/health: 200 OK, 0 calls under way; token good for 23 h"),
        "{out}"
    );
    let saw = "the service answered /v1/live/bus with 200\n\
               the service answered /v1/no/such/line with 404\n";
    assert!(out.ends_with(saw), "{out}");
}

#[test]
fn reqwest_calls_through_the_layers() {
    let out = run("reqwest_below");
    assert_eq!(
        out,
        "bus: 200 OK\nmetro: 200 OK\nrail: 200 OK\nthe service saw 3 calls and 1 token request\n"
    );
}

#[test]
fn tonic_calls_through_the_layers_with_the_token() {
    let out = run("tonic");
    assert_eq!(
        out,
        "307: on time\nthe service saw POST /lines.Lines/Status, with token Some(1)\n"
    );
}
