//! The examples as their users run them, against the simulated service.

#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

use std::process::{Command, Output};

fn run(program: &str, arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    for name in NAMES {
        command.env_remove(name);
    }
    let command = command.args(arguments).envs(settings.iter().copied());
    command.output().expect("it starts")
}

/// What a program says that ends well.
fn out(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments, &[]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {error}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn what_no_program_can_use_is_said_and_nothing_is_called() {
    let id = [("TDS_CLIENT_ID", "id")];
    let cases: [Case<'_>; 3] = [
        // A client that is set shall not be served made-up data.
        (
            env!("CARGO_BIN_EXE_shares"),
            &[],
            &id,
            "TDS_AUTH_URL and TDS_BASE_URL and TDS_CLIENT_SECRET not set",
        ),
        (
            env!("CARGO_BIN_EXE_shares"),
            &["--all"],
            &[],
            "usage: shares",
        ),
        (
            env!("CARGO_BIN_EXE_with-reqwest"),
            &["x"],
            &[],
            "usage: with-reqwest",
        ),
    ];
    for (program, arguments, settings, told) in cases {
        let output = run(program, arguments, settings);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(told), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn each_says_how_it_is_used() {
    for program in [
        env!("CARGO_BIN_EXE_shares"),
        env!("CARGO_BIN_EXE_with-reqwest"),
    ] {
        let help = out(program, &["--help"]);
        assert!(
            help.starts_with("usage: ") && help.lines().count() == 1,
            "{help}"
        );
    }
}

#[test]
fn shares_keep_together_what_the_address_may_do() {
    let said = out(env!("CARGO_BIN_EXE_shares"), &[]);
    assert!(said.starts_with("180 of 180 calls served\n"), "{said}");
    assert!(said.ends_with("answers by status: {200: 180}\n"), "{said}");
}

#[test]
fn reqwest_stays_inside_the_limits() {
    let said = out(env!("CARGO_BIN_EXE_with-reqwest"), &[]);
    assert!(
        said.starts_with("120 bodies read\nanswers by status: {200: 120}\n"),
        "{said}"
    );
}

/// A program, its arguments, its settings, and what it has to tell.
type Case<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, &'a str)], &'a str);

const NAMES: [&str; 4] = [
    "TDS_AUTH_URL",
    "TDS_BASE_URL",
    "TDS_CLIENT_ID",
    "TDS_CLIENT_SECRET",
];
