//! The quickstart as a user runs it: its exit code, its lines, and what the server saw.

#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

use std::{
    io::{BufRead, BufReader},
    process::{Command, Output, Stdio},
};

use tds_sim::{Config, Server, Tls};

/// Runs the program with these arguments and nothing else but these settings.
async fn quickstart(arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quickstart"));
    for name in NAMES {
        command.env_remove(name);
    }
    command.args(arguments).envs(settings.iter().copied());
    let run = tokio::task::spawn_blocking(move || command.output());
    run.await.expect("no panic").expect("the program starts")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn it_runs_clean_against_the_simulated_service() {
    let run = quickstart(&["--calls", "60", "--rule", "log-all"], &[]).await;
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
fn its_help_fits_a_narrow_terminal() {
    let help = Command::new(env!("CARGO_BIN_EXE_quickstart"))
        .arg("--help")
        .output()
        .expect("the program starts");
    assert!(help.status.success());
    assert!(out(&help).lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn an_interrupt_ends_it_with_the_table_so_far() {
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

#[tokio::test]
async fn it_says_so_when_the_ledger_is_not_clean() {
    // No way of counting lets fifty at once into a bucket without a burst.
    let run = quickstart(&["--calls", "50", "--rule", "leaky:0"], &[]).await;
    assert_eq!(run.status.code(), Some(1), "{}", out(&run));
    assert!(out(&run).contains("answered 423"), "{}", out(&run));
    assert!(out(&run).contains("NOT clean"), "{}", out(&run));
}

#[tokio::test]
async fn a_reader_that_goes_away_changes_no_verdict() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_quickstart"))
        .args(["--calls", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop((child.stdout.take(), child.stderr.take()));
    let run = tokio::task::spawn_blocking(move || child.wait()).await;
    assert!(run.expect("no panic").expect("it ends").success());
}

#[tokio::test]
async fn it_calls_another_service_over_https_with_the_roots_of_ssl_cert_file() {
    let mut config = Config::default();
    config.tls = Tls::On;
    let server = Server::start(config).await.expect("free ports");
    let roots = server.ca_file().expect("it speaks TLS").to_string_lossy();
    let settings = [
        ("TDS_AUTH_URL", server.auth_url()),
        ("TDS_BASE_URL", server.base_url()),
        ("TDS_CLIENT_ID", server.client_id()),
        ("TDS_CLIENT_SECRET", server.client_secret()),
        ("SSL_CERT_FILE", &*roots),
    ];
    let run = quickstart(&["/v1/live/bus", "v1/live/metro"], &settings).await;
    assert!(run.status.success(), "{}{}", out(&run), err(&run));
    let seen = server.ledger().summary();
    assert_eq!(
        (seen.data_calls, seen.complete, seen.token_posts),
        (2, 2, 1)
    );
    assert!(!out(&run).contains(server.client_secret()));

    // Without those roots nothing is said to a server that nobody vouches for.
    let run = quickstart(&["/v1/live/bus"], &settings[..4]).await;
    assert_eq!(run.status.code(), Some(1));
    assert!(out(&run).contains("certificate"), "{}", out(&run));
    assert_eq!(server.ledger().summary().data_calls, 2);
}

#[tokio::test]
async fn settings_that_cannot_be_used_are_one_line_and_exit_code_two() {
    let all = |base| {
        [
            ("TDS_AUTH_URL", "https://127.0.0.1:1"),
            ("TDS_BASE_URL", base),
            ("TDS_CLIENT_ID", "id"),
            ("TDS_CLIENT_SECRET", "secret"),
        ]
    };
    let https = all("https://127.0.0.1:1");
    let cases: [Case<'_>; 15] = [
        (&["--rule", "guess"], &[], "log-all"),
        (&["--calls", "0"], &[], "1..=1000000"),
        (&["--calls", "-1"], &[], "1..=1000000"),
        (&["--calls", "2000000"], &[], "1..=1000000"),
        (&["--calls", "many"], &[], "--calls"),
        (&["--wrong"], &[], "see --help"),
        (&["/v1/live/bus"], &[], "TDS_BASE_URL"),
        (
            &[],
            &https[..2],
            "TDS_CLIENT_ID and TDS_CLIENT_SECRET not set",
        ),
        (&[], &https, "no path"),
        (&["/p"], &all("http://data.example.org"), "https"),
        (&["/p"], &all("not a URL"), "https://host"),
        (&["/p"], &all("data.example.org"), "https://host"),
        (&["/a b"], &https, "%20"),
        (&["https://127.0.0.1:1/p"], &https, "what follows it"),
        (&["--rule", "log", "/p"], &https, "simulated"),
    ];
    for (arguments, settings, told) in cases {
        let run = quickstart(arguments, settings).await;
        let line = err(&run);
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
        assert!(line.contains(told), "{arguments:?}: {line}");
    }
}

/// Arguments, settings, and what the line has to tell.
type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);

const NAMES: [&str; 5] = [
    "TDS_AUTH_URL",
    "TDS_BASE_URL",
    "TDS_CLIENT_ID",
    "TDS_CLIENT_SECRET",
    "SSL_CERT_FILE",
];
