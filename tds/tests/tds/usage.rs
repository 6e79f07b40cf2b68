//! Help that fits a narrow terminal, refused settings and arguments, and the simulated service.

use crate::{ended, err, out, output, says, tds};

#[tokio::test]
async fn help_fits_one_screen_of_80_columns_and_40_lines_and_is_also_a_command() {
    for job in ["", "get", "bulk", "poll", "backend", "check", "health"] {
        let help = output(tds(&format!("{job} --help"))).await;
        ended(&help, 0);
        let text = out(&help);
        assert_eq!(text.lines().find(|line| line.chars().count() > 80), None);
        let lines = text.lines().count();
        assert!(lines <= 40, "{job}: {lines} lines do not fit a screen");
        let command = output(tds(&format!("help {job}"))).await;
        ended(&command, 0);
        assert_eq!(out(&command), text, "{job}");
    }
    ended(&output(tds("help fetch")).await, 2);
}

#[tokio::test]
async fn the_version_is_that_of_the_package() {
    let version = output(tds("--version")).await;
    ended(&version, 0);
    assert_eq!(
        out(&version),
        concat!("tds ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[tokio::test]
async fn the_exit_codes_of_the_help_are_those_of_the_readme() {
    let help = out(&output(tds("--help")).await);
    let codes = help.lines().filter_map(|line| line.trim().split_once("  "));
    let codes: Vec<_> = codes
        .filter(|(code, _)| code.parse::<u8>().is_ok())
        .collect();
    assert_eq!(codes.len(), 6, "{help}");
    for (code, meaning) in codes {
        let row = format!("| {code} | {meaning} |");
        assert!(README.contains(&row), "{row} is not in the README");
    }
}

const README: &str = include_str!("../../README.md");

/// Settings of a service on this machine that does not run.
const HERE: &str =
    "AUTH_URL=http://127.0.0.1:1 BASE_URL=http://127.0.0.1:1 CLIENT_ID=id CLIENT_SECRET=s3cr3t";

#[tokio::test]
async fn unusable_arguments_and_settings_end_with_exit_code_two() {
    let file = HERE.replace("CLIENT_SECRET=s3cr3t", "CLIENT_SECRET_FILE=/none");
    let none = HERE.replace("CLIENT_SECRET=s3cr3t", "");
    let half = "AUTH_URL=http://127.0.0.1:1 CLIENT_ID=id";
    let both = format!("{HERE} CLIENT_SECRET_FILE=/none");
    let at = |base: &str| HERE.replace("BASE_URL=http://127.0.0.1:1", &format!("BASE_URL={base}"));
    let (far, bare) = (at("http://data.example.org"), at("data.example.org"));
    let hostless = at("https://");
    let (odd, asks) = (at("https://d.example:x"), at("https://d.example?key=1"));
    let secret = "tds: not set: TDS_CLIENT_SECRET (or TDS_CLIENT_SECRET_FILE); --simulate";
    let missing = "not set: TDS_BASE_URL, TDS_CLIENT_SECRET (or TDS_CLIENT_SECRET_FILE);";
    for (line, settings, told) in [
        ("fetch", "", "fetch"),
        ("get", "", "<PATH>"),
        ("get /a /b", "", "/b"),
        ("get /a\u{a0}b", "", "%20"),
        ("get v1", "", "slash"),
        ("get /a#b", "", "%23"),
        ("get https://127.0.0.1:1/p", "", "the path that follows"),
        ("get /p --deadline 5", "", "500ms"),
        ("backend --listen localhost:8080", "", "127.0.0.1:8080"),
        ("backend --list - --status 9090", "", "[::1]:8080"),
        ("get /p --secret x", "", "--secret"),
        ("bulk --list -", "", "--out <FOLDER>"),
        ("get /p --deadline -1s", "", "'--deadline <TIME>': write a"),
        ("bulk --list - --out x --jobs 0", "", "a number from 1"),
        ("poll --list - --rounds -1", "", "'--rounds <N>': write a"),
        ("poll --list - --rounds x", "", "a number from 1"),
        ("get /p --rate 5/60d", HERE, "a month"),
        ("get /p --rate 0", HERE, "--rate: \"0\": write requests"),
        ("get /p --rate -1/1s", HERE, "--rate: \"-1/1s\": write"),
        ("get /p --rate NaN/1s", HERE, "write requests and a time"),
        ("get /p --connections -1", HERE, "--connections: write a"),
        ("get /p --connections 4294967296", HERE, "--connections: "),
        ("get /p --share 0/4", HERE, "--share: write a part"),
        ("get /p", "CLIENT_ID=id", "TDS_AUTH_URL, TDS_BASE_URL, TDS_"),
        ("get /p", half, missing),
        ("get /p", &none, secret),
        ("get /p", &both, "both set"),
        ("get /p", &file, "/none"),
        ("get /p", &far, "tds: TDS_BASE_URL: plain http is only for"),
        (
            "get /p",
            &bare,
            "tds: TDS_BASE_URL: the address has no scheme",
        ),
        ("get /p", &odd, "tds: TDS_BASE_URL: the address has a"),
        ("get /p", &hostless, "empty string; give https://host"),
        ("get /p", &asks, "TDS_BASE_URL has a query"),
    ] {
        let mut run = tds("");
        let words = line.split(' ').map(|word| word.replace('\u{a0}', " "));
        run.args(words).env("TDS_STATE_DIR", std::env::temp_dir());
        for setting in settings.split_whitespace() {
            let (name, value) = setting.split_once('=').expect("a setting");
            run.env(format!("TDS_{name}"), value);
        }
        let run = output(run).await;
        ended(&run, 2);
        says(&run, told);
        assert!(run.stdout.is_empty(), "{line}");
        assert!(!err(&run).contains("s3cr3t"), "{line}");
        let is_one_line = err(&run).starts_with("tds: ") && err(&run).lines().count() == 1;
        assert!(is_one_line, "{line}: {}", err(&run));
    }
    let bare = output(tds("")).await;
    ended(&bare, 2);
    says(&bare, "Commands:");
}

#[tokio::test]
async fn a_job_without_settings_ends_with_their_names_and_invents_no_data() {
    let folder = tempfile::tempdir().expect("a folder");
    let list = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tds/one.list");
    for job in [
        "get /v1/live/bus",
        "bulk --list LIST --out out",
        "poll --list LIST --out out --rounds 1",
        "backend --list LIST --listen 127.0.0.1:0",
        "backend --listen 127.0.0.1:0",
    ] {
        let mut run = tds(&job.replace("LIST", list));
        run.current_dir(&folder);
        let run = output(run).await;
        ended(&run, 2);
        assert!(run.stdout.is_empty(), "{job}: {}", out(&run));
        for name in ["AUTH_URL", "BASE_URL", "CLIENT_ID", "CLIENT_SECRET"] {
            says(&run, &format!("TDS_{name}"));
        }
        says(&run, "--simulate");
    }
    assert!(!folder.path().join("out").exists());
}

#[tokio::test]
async fn simulate_prints_that_its_service_is_simulated() {
    let mut run = tds("get /v1/live/bus --simulate");
    run.env("TDS_BASE_URL", "https://data.example.org");
    let run = output(run).await;
    ended(&run, 0);
    assert!(out(&run).starts_with(r#"{"name":"bus""#), "{}", out(&run));
    says(&run, "simulated");
}
