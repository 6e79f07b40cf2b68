//! Help that fits a narrow terminal, refused settings and arguments, and the simulated service.

use crate::{err, out, output, tds};

#[tokio::test]
async fn help_fits_one_screen_of_80_columns_and_40_lines() {
    for arguments in [
        &["--help"][..],
        &["get", "--help"],
        &["poll", "--help"],
        &["backend", "--help"],
        &["check", "--help"],
        &["bulk", "--help"],
        &["get", "-h"],
    ] {
        let help = output(tds(arguments)).await;
        assert_eq!(help.status.code(), Some(0), "{}", err(&help));
        let text = out(&help);
        let wide = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None);
        let lines = text.lines().count();
        assert!(
            lines <= 40,
            "{arguments:?}: {lines} lines do not fit a screen"
        );
    }
}

#[tokio::test]
async fn the_version_is_that_of_the_package() {
    let version = output(tds(&["--version"])).await;
    let expected = concat!("tds ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(
        (version.status.code(), &*out(&version)),
        (Some(0), expected)
    );
}

#[tokio::test]
async fn the_exit_codes_of_the_help_are_those_of_the_readme() {
    let help = out(&output(tds(&["--help"])).await);
    let codes = help
        .lines()
        .filter(|line| line.starts_with("  ") && line.contains("  "));
    let codes: Vec<_> = codes
        .filter_map(|line| line.trim().split_once("  "))
        .filter(|(code, _)| code.parse::<u8>().is_ok())
        .collect();
    assert_eq!(codes.len(), 6, "{help}");
    for (code, meaning) in codes {
        let row = format!("| {code} | {meaning} |");
        assert!(README.contains(&row), "{row} is not in the README");
    }
}

#[tokio::test]
async fn unusable_arguments_and_settings_end_with_exit_code_two() {
    let real = |base| {
        vec![
            ("TDS_AUTH_URL", "http://127.0.0.1:1"),
            ("TDS_BASE_URL", base),
            ("TDS_CLIENT_ID", "id"),
            ("TDS_CLIENT_SECRET", "s3cr3t"),
        ]
    };
    let here = real("http://127.0.0.1:1");
    let both = [here.clone(), vec![("TDS_CLIENT_SECRET_FILE", "/none")]].concat();
    let file = [
        here[..3].to_vec(),
        vec![("TDS_CLIENT_SECRET_FILE", "/none")],
    ]
    .concat();
    let get = ["get", "/v1/live/bus"];
    let cases: Vec<Case<'_>> = vec![
        (&[], vec![], "Commands:"),
        (&["fetch"], vec![], "fetch"),
        (&["get"], vec![], "<PATH>"),
        (&["get", "/a", "/b"], vec![], "/b"),
        (&["get", "/a b"], vec![], "%20"),
        (&["get", "v1"], vec![], "slash"),
        (&["get", "/a#b"], vec![], "%23"),
        (
            &["get", "https://127.0.0.1:1/p"],
            vec![],
            "the path that follows",
        ),
        (&["get", "/p", "--deadline", "5"], vec![], "500ms"),
        (
            &["backend", "--listen", "localhost:8080"],
            vec![],
            "127.0.0.1:8080",
        ),
        (
            &["backend", "--list", "-", "--status", "9090"],
            vec![],
            "[::1]:8080",
        ),
        (&["get", "/p", "--secret", "x"], vec![], "--secret"),
        (&["bulk", "--list", "-"], vec![], "--out <FOLDER>"),
        (
            &["bulk", "--list", "-", "--out", "x", "--jobs", "0"],
            vec![],
            "a number from 1",
        ),
        (
            &["poll", "--list", "-", "--rounds", "x"],
            vec![],
            "a number from 1",
        ),
        (&["get", "/p", "--rate", "5/60d"], here.clone(), "a month"),
        (&get, vec![("TDS_CLIENT_ID", "id")], "TDS_AUTH_URL"),
        (
            &get,
            here[..3].to_vec(),
            "TDS_CLIENT_SECRET (or TDS_CLIENT_SECRET_FILE) is not set",
        ),
        (&get, both, "both set"),
        (&get, file, "/none"),
        (&get, real("http://data.example.org"), "https"),
        (&get, real("data.example.org"), "https"),
    ];
    for (arguments, settings, told) in cases {
        let mut run = tds(arguments);
        run.envs(settings)
            .env("TDS_STATE_DIR", std::env::temp_dir());
        let run = output(run).await;
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {}", err(&run));
        assert!(err(&run).contains(told), "{arguments:?}: {}", err(&run));
        assert!(run.stdout.is_empty(), "{arguments:?}");
        assert!(!err(&run).contains("s3cr3t"), "{arguments:?}");
        let is_one_line = err(&run).starts_with("tds: ") && err(&run).lines().count() == 1;
        assert!(
            is_one_line || arguments.is_empty(),
            "{arguments:?}: {}",
            err(&run)
        );
    }
}

#[tokio::test]
async fn a_job_without_settings_ends_with_their_names_and_invents_no_data() {
    let out_folder = std::env::temp_dir().join(format!("tds-usage-{}", std::process::id()));
    let folder = out_folder.to_str().expect("text");
    for job in [
        &["get", "/v1/live/bus"][..],
        &["bulk", "--list", LIST, "--out", folder],
        &["poll", "--list", LIST, "--out", folder, "--rounds", "1"],
        &["backend", "--list", LIST, "--listen", "127.0.0.1:0"],
        &["backend", "--listen", "127.0.0.1:0"],
    ] {
        let run = output(tds(job)).await;
        assert_eq!(run.status.code(), Some(2), "{job:?}: {}", err(&run));
        assert!(run.stdout.is_empty(), "{job:?}: {}", out(&run));
        for name in [
            "TDS_AUTH_URL",
            "TDS_BASE_URL",
            "TDS_CLIENT_ID",
            "TDS_CLIENT_SECRET",
            "--simulate",
        ] {
            assert!(err(&run).contains(name), "{job:?} {name}: {}", err(&run));
        }
    }
    assert!(!out_folder.exists());
}

#[tokio::test]
async fn only_missing_settings_are_named() {
    let mut run = tds(&["get", "/v1/live/bus"]);
    run.env("TDS_AUTH_URL", "http://127.0.0.1:1")
        .env("TDS_CLIENT_ID", "id");
    let run = output(run).await;
    assert_eq!(run.status.code(), Some(2), "{}", err(&run));
    let missing = "TDS_BASE_URL and TDS_CLIENT_SECRET (or TDS_CLIENT_SECRET_FILE) are not set";
    assert!(err(&run).contains(missing), "{}", err(&run));
    assert!(!err(&run).contains("TDS_AUTH_URL"), "{}", err(&run));
}

#[tokio::test]
async fn simulate_prints_that_its_service_is_simulated() {
    let mut run = tds(&["get", "/v1/live/bus", "--simulate"]);
    run.env("TDS_BASE_URL", "https://data.example.org");
    let run = output(run).await;
    assert!(run.status.success(), "{}", err(&run));
    assert!(out(&run).starts_with(r#"{"name":"bus""#), "{}", out(&run));
    assert!(err(&run).contains("simulated"), "{}", err(&run));
}

/// Arguments, settings, and the expected text.
type Case<'a> = (&'a [&'a str], Vec<(&'a str, &'a str)>, &'a str);

const README: &str = include_str!("../../README.md");

/// A list with one resource.
const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tds/one.list");

#[tokio::test]
async fn help_is_also_a_command() {
    for (arguments, like) in [
        (&["help"][..], &["--help"][..]),
        (&["help", "bulk"], &["bulk", "--help"]),
        (&["help", "get"], &["get", "--help"]),
    ] {
        let (help, like) = (output(tds(arguments)).await, output(tds(like)).await);
        assert_eq!(help.status.code(), Some(0), "{arguments:?}: {}", err(&help));
        assert_eq!(out(&help), out(&like), "{arguments:?}");
    }
    let wrong = output(tds(&["help", "fetch"])).await;
    assert_eq!(wrong.status.code(), Some(2), "{}", err(&wrong));
}
