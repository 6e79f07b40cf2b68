//! The quickstart as a user runs it: its exit code, its lines, and what the server saw.

#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

use std::{
    io::{BufRead, BufReader},
    process::{Command, Output, Stdio},
};

fn quickstart(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quickstart"));
    command
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn quickstart_runs_clean_against_the_simulated_service() {
    let run = quickstart(&["--calls", "60", "--rule", "log-all"]);
    assert!(run.status.success(), "{}{}", out(&run), err(&run));
    let table = out(&run);
    for line in [
        "answered 200   60",
        "token POSTs      1",
        " of 50",
        " of 60",
        "clean",
    ] {
        assert!(table.contains(line), "{line} is not in {table}");
    }
    assert!(err(&run).contains("60 of 60 calls done"), "plain lines");
}

#[test]
fn quickstart_help_fits_80_columns() {
    let help = quickstart(&["--help"]);
    assert!(help.status.success());
    assert!(out(&help).lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn interrupt_ends_quickstart_with_its_table() {
    let mut run = Command::new(env!("CARGO_BIN_EXE_quickstart"))
        .args(["--calls", "100000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(run.stderr.take().expect("it is piped"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line of progress");
    assert!(line.contains("of 100000 calls done"), "{line}");
    let pid = run.id().to_string();
    let interrupt = Command::new("kill").args(["-INT", &pid]).status();
    assert!(interrupt.expect("kill is there").success());
    let run = run.wait_with_output().expect("it ends");
    assert_eq!(run.status.code(), Some(1));
    let table = out(&run);
    for line in ["what the server saw", " of 50", "interrupted", "NOT clean"] {
        assert!(table.contains(line), "{line} is not in {table}");
    }
}

#[test]
fn quickstart_fails_if_the_ledger_is_not_clean() {
    // A bucket without a burst never accepts fifty at once.
    let run = quickstart(&["--calls", "50", "--rule", "leaky:0"]);
    assert_eq!(run.status.code(), Some(1), "{}", out(&run));
    assert!(out(&run).contains("answered 423"), "{}", out(&run));
    assert!(out(&run).contains("NOT clean"), "{}", out(&run));
}

#[test]
fn closed_output_does_not_change_the_exit_code() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_quickstart"))
        .args(["--calls", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop((child.stdout.take(), child.stderr.take()));
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn invalid_arguments_print_one_line_and_exit_with_two() {
    for (arguments, expected) in [
        (&["--rule", "guess"][..], "log-all"),
        (&["--calls", "0"], "1 to 1000000"),
        (&["--calls", "-1"], "1 to 1000000"),
        (&["--calls", "2000000"], "1 to 1000000"),
        (&["--calls", "many"], "--calls"),
        (&["--seed"], "--seed"),
        (&["--wrong"], "see --help"),
        (&["/v1/live/bus"], "see --help"),
    ] {
        let run = quickstart(arguments);
        let line = err(&run);
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
        assert!(line.contains(expected), "{arguments:?}: {line}");
    }
}
