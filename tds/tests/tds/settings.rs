//! Settings: their sources, `tds check`, limits and the log, as the ledger of the service shows
//! them.

use std::{fs, os::unix::fs::PermissionsExt as _};

use tds_sim::Config;
use tokio::time::Duration;

use crate::{
    Bench, err, out, output, tds, text,
    upstream::{Upstream, answer},
};

#[tokio::test]
async fn a_flag_overrides_the_environment_and_the_environment_overrides_the_file() {
    let bench = Bench::new("settings-order", Config::default()).await;
    let file = bench.path("tds.env");
    let (auth, base) = (bench.server.auth_url(), bench.server.base_url());
    let (id, secret) = (bench.server.client_id(), bench.server.client_secret());
    let lines = format!(
        "# of a service\nTDS_AUTH_URL='{auth}'\nexport TDS_BASE_URL=\"http://127.0.0.1:1\"\n\
         TDS_CLIENT_ID=wrong\nTDS_CLIENT_SECRET={secret}\nTDS_RATE=5/60s\nOTHER=1\n"
    );
    fs::write(&file, lines).expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let mut check = tds(&[
        "check",
        "/v1/live/bus",
        "--env-file",
        text(&file),
        "--base-url",
        base,
        "--share",
        "1/2",
    ]);
    check
        .env("TDS_BASE_URL", "http://127.0.0.1:2")
        .env("TDS_CLIENT_ID", id)
        .env("TDS_STATE_DIR", bench.path("state"));
    let run = output(check).await;
    assert_eq!(run.status.code(), Some(0), "{}{}", out(&run), err(&run));
    for line in [
        format!("TDS_AUTH_URL           {auth} (--env-file)"),
        format!("TDS_BASE_URL           {base} (flag)"),
        format!("TDS_CLIENT_ID          {id} (environment)"),
        "TDS_CLIENT_SECRET      (not shown) (--env-file)".to_owned(),
        "TDS_RATE               5/60s (--env-file)".to_owned(),
        "TDS_CONNECTIONS        60 (default)".to_owned(),
        "TDS_SHARE              1/2 (flag)".to_owned(),
        "data:  /v1/live/bus has 128 bytes".to_owned(),
    ] {
        assert!(
            out(&run).lines().any(|it| it == line),
            "{line}: {}",
            out(&run)
        );
    }
    assert!(out(&run).contains("token: valid for 2"), "{}", out(&run));
    assert!(!out(&run).contains(secret));
    let seen = bench.server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 1));

    // A file with a secret may be readable by its owner and group only.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let run = output(tds(&["check", "--env-file", text(&file)])).await;
    assert_eq!(run.status.code(), Some(2), "{}", err(&run));
    assert!(err(&run).contains("chmod"), "{}", err(&run));
}

#[tokio::test]
async fn check_requests_a_token_though_one_is_stored() {
    let bench = Bench::new("settings-check", Config::default()).await;
    assert!(bench.run(&["get", "/v1/live/bus"]).await.status.success());
    // Without a path of data the service still shows that it accepts the token.
    let run = bench.run(&["check"]).await;
    assert_eq!(run.status.code(), Some(0), "{}", err(&run));
    assert!(out(&run).contains("accepts the token"), "{}", out(&run));
    let seen = bench.server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (2, 2));

    let mut wrong = bench.tds(&["check", "/v1/live/bus"]);
    wrong.env("TDS_CLIENT_SECRET", "wr0ng-s3cr3t");
    let run = output(wrong).await;
    assert_eq!(run.status.code(), Some(4), "{}", err(&run));
    assert!(!err(&run).contains("wr0ng") && !out(&run).contains("wr0ng"));
    assert_eq!(bench.server.ledger().summary().token_posts, 3);
}

#[tokio::test]
async fn unusable_limits_are_refused_before_any_request() {
    let bench = Bench::new("settings-limits", Config::default()).await;
    // Each is called as it was given: by its flag, or by its name.
    for (flag, name, value, told) in [
        ("--rate", "TDS_RATE", "5", "5/60s"),
        ("--rate", "TDS_RATE", "0/1s", "5/60s"),
        ("--rate", "TDS_RATE", "5/60x", "5/60s"),
        ("--connections", "TDS_CONNECTIONS", "0", "number from 1"),
        ("--share", "TDS_SHARE", "2/1", "1/4"),
        ("--log", "TDS_LOG", "xml", "text or json"),
        ("--ca", "TDS_CA_FILE", "/none", "/none"),
        ("--secret-file", "TDS_CLIENT_SECRET_FILE", "/none", "/none"),
        ("--base-url", "TDS_BASE_URL", "http://far.example", "https"),
        ("--auth-url", "TDS_AUTH_URL", "http://far.example", "https"),
        ("--fleet", "TDS_FLEET_STORE", "nonsense", "redis://"),
    ] {
        for is_flag in [true, false] {
            let mut run = bench.tds(&["get", "/v1/live/bus"]);
            if flag == "--secret-file" {
                run.env_remove("TDS_CLIENT_SECRET");
            }
            let called = if is_flag {
                run.args([flag, value]);
                flag
            } else {
                run.env(name, value);
                name
            };
            let run = output(run).await;
            assert_eq!(run.status.code(), Some(2), "{called}: {}", err(&run));
            let line = err(&run);
            let is_named = line.starts_with(&format!("tds: {called}: "));
            assert!(is_named && line.contains(told), "{called}: {line}");
        }
    }
    for (arguments, told) in [
        (["--share", "1/100"], "1/100 of 50 is less than one"),
        (["--env-file", "/none"], "/none"),
    ] {
        let run = [&["get", "/v1/live/bus"], &arguments[..]].concat();
        let run = bench.run(&run).await;
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {}", err(&run));
        assert!(err(&run).contains(told), "{arguments:?}: {}", err(&run));
    }
    assert_eq!(bench.server.ledger().summary().token_posts, 0);
}

// Reproducer for a plan of five requests a minute, of whose 72 calls 62 were refused.
#[tokio::test]
async fn small_quota_is_kept_by_its_rate() {
    let mut config = Config::default();
    (config.rate, config.per) = (5, Duration::from_secs(2));
    let bench = Bench::new("settings-rate", config).await;
    let list = bench.path("list");
    let lines: String = (0..12).map(|n| format!("/v1/live/bus-{n}\n")).collect();
    fs::write(&list, lines).expect("a file");
    let files = bench.path("files");
    let bulk = ["bulk", "--list", text(&list), "--out", text(&files)];
    let run = bench
        .run(&[&bulk[..], &["--rate", "5/2s", "--rate", "1000/1h"]].concat())
        .await;
    assert_eq!(run.status.code(), Some(0), "{}", err(&run));
    let seen = bench.server.ledger().summary();
    assert_eq!(seen.by_status, [(200, 12)].into());
}

#[tokio::test]
async fn the_log_is_text_or_json_with_a_level() {
    let bench = Bench::new("settings-log", Config::default()).await;
    let run = bench.run(&["get", "/nothing", "--log", "json:debug"]).await;
    assert_eq!(run.status.code(), Some(1), "{}", err(&run));
    let lines: Vec<serde_json::Value> = err(&run)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let has = |text: &str| lines.iter().any(|line| line.to_string().contains(text));
    assert!(has("no such resource"), "{}", err(&run));
    assert!(lines.iter().any(|line| line["level"] == "DEBUG"));
    assert!(!err(&run).contains(bench.server.client_secret()) && !err(&run).contains("eyJ"));

    let mut run = bench.tds(&["get", "/nothing"]);
    run.env("TDS_LOG", "text:error");
    assert_eq!(err(&output(run).await), "");
}

#[tokio::test]
async fn unknown_name_of_a_setting_is_refused_or_printed() {
    let bench = Bench::new("settings-unknown", Config::default()).await;
    for (name, code, told) in [
        ("TDS_RAT", 2, "the nearest is TDS_RATE"),
        ("TDS_RATES", 2, "the nearest is TDS_RATE"),
        ("TDS_CLIENT_SECERT", 2, "the nearest is TDS_CLIENT_SECRET"),
        ("TDS_BASEURL", 2, "the nearest is TDS_BASE_URL"),
        ("TDS_NIGHTLY_JOB", 0, "no effect: TDS_NIGHTLY_JOB"),
        ("TDS_PORT", 0, ""),
        ("TDS_PORT_8080_TCP_ADDR", 0, ""),
        ("TDS_SERVICE_HOST", 0, ""),
        ("TDS_SERVICE_PORT_HTTP", 0, ""),
        ("TDS_SIM_PORT_80_TCP", 0, ""),
        ("OTHER_RATE", 0, ""),
    ] {
        let mut run = bench.tds(&["get", "/v1/live/bus"]);
        run.env(name, "5/1s");
        let run = output(run).await;
        assert_eq!(run.status.code(), Some(code), "{name}: {}", err(&run));
        match told {
            "" => assert_eq!(err(&run), "", "{name}"),
            told => assert_eq!(err(&run).matches(told).count(), 1, "{name}: {}", err(&run)),
        }
        // An empty variable counts as not set.
        let mut run = bench.tds(&["get", "/v1/live/bus"]);
        run.env(name, "");
        let run = output(run).await;
        assert_eq!((run.status.code(), &*err(&run)), (Some(0), ""), "{name}");
    }
    let file = bench.path("unknown.env");
    for (line, code) in [
        ("TDS_RAT=5/1s", 2),
        ("TDS_NIGHTLY_JOB=1", 2),
        ("OTHER=1", 0),
    ] {
        fs::write(&file, line).expect("a file");
        let run = bench
            .run(&["get", "/v1/live/bus", "--env-file", text(&file)])
            .await;
        assert_eq!(run.status.code(), Some(code), "{line}: {}", err(&run));
        assert_eq!(
            err(&run).contains("the nearest is TDS_"),
            code == 2,
            "{line}"
        );
    }
}

#[tokio::test]
async fn tokens_come_from_a_server_an_endpoint_or_an_issuer_over_a_companys_certificate() {
    let mut config = Config::default();
    config.tls = true;
    let bench = Bench::new("settings-issuer", config).await;
    let ca = bench.server.ca_file().expect("it speaks TLS").to_owned();
    let realm = format!("{}/auth/realms/ServiceConnect", bench.server.auth_url());
    let endpoint = format!("{realm}/protocol/openid-connect/token");
    let named = endpoint.clone();
    let issuer = Upstream::start(move |head, _| {
        let host = head
            .split_once("\r\nhost: ")
            .and_then(|(_, rest)| rest.split_once('\r'));
        let host = host.expect("a request has it").0;
        let document = format!(r#"{{"issuer":"http://{host}","token_endpoint":"{named}"}}"#);
        let headers = format!("content-length: {}\r\n", document.len());
        answer("200 OK", &headers, document.as_bytes())
    });
    let issuer = issuer.url.clone();
    let get = |flags: &[&str]| {
        let mut run = bench.tds(&[&["get", "/v1/live/bus", "--deadline", "1m"], flags].concat());
        run.env_remove("SSL_CERT_FILE");
        run.env_remove("TDS_AUTH_URL");
        run
    };
    let mut posts = 0;
    for flags in [["--token-url", &endpoint], ["--discover", &issuer]] {
        // The second run has the token of the first, and no other kind of source has.
        posts += 1;
        for _ in 0..2 {
            let run = get(&[&flags[..], &["--ca", text(&ca)]].concat());
            let run = output(run).await;
            assert_eq!(run.status.code(), Some(0), "{flags:?}: {}", err(&run));
            let seen = bench.server.ledger().summary();
            assert_eq!(seen.token_posts, posts, "{flags:?}");
        }
    }
    // A flag is stronger than the environment, as everywhere.
    let mut run = get(&["--token-url", &endpoint, "--ca", text(&ca)]);
    run.env("TDS_AUTH_URL", "https://127.0.0.1:1");
    assert_eq!(output(run).await.status.code(), Some(0));
    for (flags, told) in [
        (
            ["--token-url", &*endpoint, "--discover", &*issuer],
            "are both set",
        ),
        (
            ["--discover", "http://example.org", "--ca", text(&ca)],
            "--discover: ",
        ),
        (["--token-url", "none", "--ca", text(&ca)], "--token-url: "),
        (["--token-url", &*endpoint, "--ca", "/none"], "--ca: /none"),
        (
            ["--token-url", &*endpoint, "--ca", "/dev/null"],
            "certificate",
        ),
    ] {
        let run = output(get(&flags)).await;
        assert_eq!(run.status.code(), Some(2), "{flags:?}: {}", err(&run));
        assert!(err(&run).contains(told), "{flags:?}: {}", err(&run));
    }
}

#[tokio::test]
async fn an_env_file_may_have_a_mark_and_exports_and_no_comment_behind_a_value() {
    let bench = Bench::new("settings-env", Config::default()).await;
    let file = bench.path("tds.env");
    for (lines, code) in [
        ("\u{feff}TDS_RATE=5/1s\r\n", 0),
        ("\u{feff}# a comment\nexport\tTDS_RATE=5/1s\n", 0),
        ("export   TDS_RATE = '5/1s'  \n  # a comment\n", 0),
        ("OTHER=a # b\nTDS_RATE=5/1s\n", 0),
        ("TDS_RATE=\"5/1s\" \n", 0),
        ("TDS_RATE=5/1s # five\n", 2),
        ("TDS_RATE=5/1s\t# five\n", 2),
        ("TDS_RATE= # five\n", 2),
        ("TDS_RATE=\"5/1s\" # five\n", 2),
    ] {
        fs::write(&file, lines).expect("a file");
        let run = bench.run(&["check", "--env-file", text(&file)]).await;
        assert_eq!(run.status.code(), Some(code), "{lines:?}: {}", err(&run));
        if code == 0 {
            let line = "TDS_RATE               5/1s (--env-file)\n";
            assert!(out(&run).contains(line), "{lines:?}: {}", out(&run));
        } else {
            let told = "quote the value, or move the comment";
            assert!(err(&run).contains(told), "{lines:?}: {}", err(&run));
        }
    }
    // A # that is part of a secret stays.
    for (lines, code) in [
        (
            format!("TDS_CLIENT_SECRET={}#\n", bench.server.client_secret()),
            4,
        ),
        (
            format!("TDS_CLIENT_SECRET='{} #'\n", bench.server.client_secret()),
            4,
        ),
        (
            format!("TDS_CLIENT_SECRET={}\n", bench.server.client_secret()),
            0,
        ),
    ] {
        fs::write(&file, lines).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
        let mut run = bench.tds(&["check", "--env-file", text(&file)]);
        run.env_remove("TDS_CLIENT_SECRET");
        let run = output(run).await;
        assert_eq!(run.status.code(), Some(code), "{}", err(&run));
    }
}

#[tokio::test]
async fn addresses_are_shown_without_their_user_and_their_query() {
    let bench = Bench::new("settings-addresses", Config::default()).await;
    let auth = bench.server.auth_url();
    let realm = format!("{auth}/auth/realms/ServiceConnect/protocol/openid-connect/token");
    let keyed = format!("{realm}?apikey=s3cr3t");
    for more in [&[][..], &["--json"]] {
        let mut run = bench.tds(&[&["check", "/v1/live/bus"], more].concat());
        run.env_remove("TDS_AUTH_URL").env("TDS_TOKEN_URL", &keyed);
        let run = output(run).await;
        let all = out(&run) + &err(&run);
        assert!(!all.contains("s3cr3t"), "{all}");
        assert!(out(&run).contains(&realm), "{all}");
        assert!(err(&run).contains("TDS_TOKEN_URL has a query"), "{all}");
    }
}

#[tokio::test]
async fn passwords_in_addresses_obey_the_rules_for_secrets() {
    let bench = Bench::new("settings-passwords", Config::default()).await;
    let file = bench.path("tds.env");
    for (flag, name, value) in [
        ("--fleet", "TDS_FLEET_STORE", "redis://:s3cr3t@127.0.0.1:1"),
        (
            "--fleet",
            "TDS_FLEET_STORE",
            "redis+unix:///none.sock?db=1&pass=s3cr3t",
        ),
        ("--proxy", "TDS_PROXY", "http://u:s3cr3t@127.0.0.1:1"),
    ] {
        let run = bench.run(&["get", "/v1/live/bus", flag, value]).await;
        assert_eq!(run.status.code(), Some(2), "{flag}: {}", err(&run));
        assert!(
            err(&run).contains(name) && !err(&run).contains("s3cr3t"),
            "{}",
            err(&run)
        );
        fs::write(&file, format!("{name}={value}\n")).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("it is ours");
        let run = bench
            .run(&["get", "/v1/live/bus", "--env-file", text(&file)])
            .await;
        assert_eq!(run.status.code(), Some(2), "{name}: {}", err(&run));
        assert!(err(&run).contains("chmod"), "{name}: {}", err(&run));
    }
    assert_eq!(bench.server.ledger().summary().token_posts, 0);
}

#[tokio::test]
async fn a_file_of_certificates_is_named_with_what_is_wrong_and_functions_are_not() {
    let mut config = Config::default();
    config.tls = true;
    let bench = Bench::new("settings-roots", config).await;
    let pem = fs::read_to_string(bench.server.ca_file().expect("it speaks TLS")).expect("text");
    let file = bench.path("ca.pem");
    let trusted = pem.replace("CERTIFICATE", "TRUSTED CERTIFICATE");
    for (bytes, told) in [
        (&b""[..], "empty"),
        (b"\x30\x82\x01", "DER"),
        (trusted.as_bytes(), "TRUSTED"),
        (b"\xff\xfe-\0", "mark"),
        (format!("\u{feff}{pem}").as_bytes(), "mark"),
        (b"hello", "no certificate"),
    ] {
        fs::write(&file, bytes).expect("a file");
        for name in ["TDS_CA_FILE", "SSL_CERT_FILE"] {
            let mut run = bench.tds(&["get", "/v1/live/bus", "--deadline", "5s"]);
            run.env(name, &file);
            let run = output(run).await;
            assert_eq!(run.status.code(), Some(2), "{name} {told}: {}", err(&run));
            assert!(
                err(&run).contains(&format!("{name}: {}", text(&file))),
                "{}",
                err(&run)
            );
            assert!(err(&run).contains(told), "{name} {told}: {}", err(&run));
        }
    }
    // Without the service's CA, and to another machine without TLS.
    let mut run = bench.tds(&["get", "/v1/live/bus", "--deadline", "5s"]);
    run.env_remove("SSL_CERT_FILE");
    let run = output(run).await;
    assert_eq!(run.status.code(), Some(5), "{}", err(&run));
    assert!(
        err(&run).contains("--ca") && err(&run).contains("TDS_CA_FILE"),
        "{}",
        err(&run)
    );
    assert!(!err(&run).contains("::"), "{}", err(&run));
    for name in ["TDS_AUTH_URL", "TDS_BASE_URL"] {
        let mut run = bench.tds(&["get", "/v1/live/bus"]);
        run.env(name, "http://data.example");
        let run = output(run).await;
        assert_eq!(run.status.code(), Some(2), "{}", err(&run));
        assert!(
            err(&run).contains(name) && err(&run).contains("https://"),
            "{}",
            err(&run)
        );
        assert!(!err(&run).contains("::"), "{}", err(&run));
    }
}
