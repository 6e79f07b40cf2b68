//! Settings: their sources, `tds check`, limits and the log, as the ledger of the service shows
//! them.

use std::fs;

use serde_json::Value;
use tokio::time::Duration;

use crate::{
    Bench, ended, err, events, out, output, says, tds,
    upstream::{Upstream, sized},
};

#[track_caller]
fn prints(run: &std::process::Output, line: &str) {
    assert!(
        out(run).lines().any(|it| it == line),
        "{line}: {}",
        out(run)
    );
}

#[tokio::test]
async fn a_flag_overrides_the_environment_and_the_environment_overrides_the_file() {
    let bench = Bench::new().await;
    let (auth, base) = (bench.server.auth_url(), bench.server.base_url());
    let (id, secret) = (bench.server.client_id(), bench.server.client_secret());
    let lines = format!(
        "# of a service\nTDS_AUTH_URL='{auth}'\nexport TDS_BASE_URL=\"http://127.0.0.1:1\"\n\
         TDS_CLIENT_ID=wrong\nTDS_CLIENT_SECRET={secret}\nTDS_RATE=5/60s\nOTHER=1\n"
    );
    bench.write("tds.env", lines);
    bench.permit("tds.env", 0o600);
    let flags = format!("--env-file tds.env --base-url {base} --share 1/2");
    let mut check = tds(&format!("check /v1/live/bus {flags}"));
    check
        .current_dir(&bench.folder)
        .env("TDS_BASE_URL", "http://127.0.0.1:2")
        .env("TDS_CLIENT_ID", id)
        .env("TDS_STATE_DIR", "state");
    let run = output(check).await;
    ended(&run, 0);
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
        prints(&run, &line);
    }
    assert!(out(&run).contains("token: valid for 2"), "{}", out(&run));
    assert!(!out(&run).contains(secret));
    assert_eq!(bench.asked(), (1, 1));

    // A file with a secret may be readable by its owner and group only.
    bench.permit("tds.env", 0o644);
    let run = bench.ends(2, "check --env-file tds.env").await;
    says(&run, "chmod");
}

#[tokio::test]
async fn check_requests_a_token_though_one_is_stored() {
    let bench = Bench::new().await;
    bench.ends(0, "get /v1/live/bus").await;
    // Without a path of data the service still shows that it accepts the token.
    let run = bench.ends(0, "check").await;
    assert!(out(&run).contains("accepts the token"), "{}", out(&run));
    assert_eq!(bench.asked(), (2, 2));

    let mut wrong = bench.tds("check /v1/live/bus");
    wrong.env("TDS_CLIENT_SECRET", "wr0ng-s3cr3t");
    let run = output(wrong).await;
    ended(&run, 4);
    assert!(!err(&run).contains("wr0ng") && !out(&run).contains("wr0ng"));
    assert_eq!(bench.asked().0, 3);
}

#[tokio::test]
async fn unusable_limits_are_refused_before_any_request() {
    let bench = Bench::new().await;
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
        (
            "--base-url",
            "TDS_BASE_URL",
            "http://far.example",
            "use an https address",
        ),
        (
            "--auth-url",
            "TDS_AUTH_URL",
            "http://far.example",
            "use an https address",
        ),
        ("--fleet", "TDS_FLEET_STORE", "nonsense", "redis://"),
    ] {
        for called in [flag, name] {
            let mut run = bench.tds("get /v1/live/bus");
            if flag == "--secret-file" {
                run.env_remove("TDS_CLIENT_SECRET");
            }
            match called == flag {
                true => run.args([flag, value]),
                false => run.env(name, value),
            };
            let run = output(run).await;
            ended(&run, 2);
            says(&run, told);
            let line = err(&run);
            assert!(
                line.starts_with(&format!("tds: {called}: ")),
                "{called}: {line}"
            );
            assert!(!line.contains("::"), "{line}");
        }
    }
    for (arguments, told) in [
        ("--share 1/100", "1/100 of 50 is less than one"),
        ("--env-file /none", "/none"),
    ] {
        let run = bench
            .ends(2, &format!("get /v1/live/bus {arguments}"))
            .await;
        says(&run, told);
    }
    assert_eq!(bench.asked(), (0, 0));
}

// Reproducer for a plan of five requests a minute, of whose 72 calls 62 were refused.
#[tokio::test]
async fn small_quota_is_kept_by_its_rate() {
    let bench = Bench::with(|config| (config.rate, config.per) = (5, Duration::from_secs(2))).await;
    let limits = "--rate 5/2s --rate 1000/1h";
    let run = output(bench.bulk("/v1/live/bus-{1..12}\n", limits)).await;
    ended(&run, 0);
    assert_eq!(bench.summary().by_status, [(200, 12)].into());
}

#[tokio::test]
async fn the_log_is_text_or_json_with_a_level() {
    let bench = Bench::new().await;
    let run = bench.ends(1, "get /nothing --log json:debug").await;
    let lines = events(&err(&run));
    let has_text = |line: &Value| line.to_string().contains("no such resource");
    assert!(lines.iter().any(has_text), "{lines:?}");
    assert!(lines.iter().any(|line| line["level"] == "DEBUG"));
    assert!(!err(&run).contains(bench.server.client_secret()) && !err(&run).contains("eyJ"));
    let run = bench.ends(1, "get /nothing --log text:error").await;
    assert_eq!(err(&run), "");
}

#[tokio::test]
async fn unknown_name_of_a_setting_is_refused_or_printed() {
    let bench = Bench::new().await;
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
        // An empty variable counts as not set.
        for (value, code, told) in [("5/1s", code, told), ("", 0, "")] {
            let mut run = bench.tds("get -q /v1/live/bus");
            run.env(name, value);
            let run = output(run).await;
            assert_eq!(run.status.code(), Some(code), "{name}: {}", err(&run));
            match told {
                "" => assert_eq!(err(&run), "", "{name}"),
                told => assert_eq!(err(&run).matches(told).count(), 1, "{name}: {}", err(&run)),
            }
        }
    }
    for (line, code) in [
        ("TDS_RAT=5/1s", 2),
        ("TDS_NIGHTLY_JOB=1", 2),
        ("OTHER=1", 0),
    ] {
        bench.write("unknown.env", line);
        let run = bench
            .ends(code, "get /v1/live/bus --env-file unknown.env")
            .await;
        let is_told = err(&run).contains("the nearest is TDS_");
        assert_eq!(is_told, code == 2, "{line}");
    }
}

#[tokio::test]
async fn tokens_come_from_a_server_an_endpoint_or_an_issuer_over_a_companys_certificate() {
    let bench = Bench::with(|config| config.tls = true).await;
    let ca = bench.server.ca_file().expect("it speaks TLS");
    fs::copy(ca, bench.path("ca.pem")).expect("a file");
    let realm = format!("{}/auth/realms/ServiceConnect", bench.server.auth_url());
    let endpoint = format!("{realm}/protocol/openid-connect/token");
    let named = endpoint.clone();
    let issuer = Upstream::start(move |head, _| {
        let host = head
            .split_once("\r\nhost: ")
            .and_then(|(_, rest)| rest.split_once('\r'));
        let host = host.expect("a request has it").0;
        let document = format!(r#"{{"issuer":"http://{host}","token_endpoint":"{named}"}}"#);
        sized("200 OK", "", document.as_bytes())
    });
    let issuer = &issuer.url;
    let get = async |code: i32, auth: Option<&str>, flags: &str| {
        let mut run = bench.tds(&format!("get /v1/live/bus --deadline 1m {flags}"));
        run.env_remove("SSL_CERT_FILE").env_remove("TDS_AUTH_URL");
        run.envs(auth.map(|auth| ("TDS_AUTH_URL", auth)));
        let run = output(run).await;
        assert_eq!(run.status.code(), Some(code), "{flags}: {}", err(&run));
        run
    };
    let by_endpoint = format!("--token-url {endpoint} --ca ca.pem");
    let by_issuer = format!("--discover {issuer} --ca ca.pem");
    for (posts, flags) in [(1, &by_endpoint), (2, &by_issuer)] {
        // The second run has the token of the first, and no other kind of source has.
        for _ in 0..2 {
            get(0, None, flags).await;
            assert_eq!(bench.asked().0, posts, "{flags}");
        }
    }
    // A flag is stronger than the environment, as everywhere.
    get(0, Some("https://127.0.0.1:1"), &by_endpoint).await;
    for (flags, told) in [
        (
            format!("--token-url {endpoint} --discover {issuer}"),
            "are both set",
        ),
        (
            "--discover http://example.org --ca ca.pem".to_owned(),
            "--discover: ",
        ),
        ("--token-url none --ca ca.pem".to_owned(), "--token-url: "),
        (format!("--token-url {endpoint} --ca /none"), "--ca: /none"),
        (
            format!("--token-url {endpoint} --ca /dev/null"),
            "certificate",
        ),
    ] {
        says(&get(2, None, &flags).await, told);
    }
}

#[tokio::test]
async fn an_env_file_may_have_a_mark_and_exports_and_no_comment_behind_a_value() {
    let bench = Bench::new().await;
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
        bench.write("tds.env", lines);
        let run = bench.ends(code, "check --env-file tds.env").await;
        match code {
            0 => prints(&run, "TDS_RATE               5/1s (--env-file)"),
            _ => says(&run, "quote the value, or move the comment"),
        }
    }
    // A # that is part of a secret stays.
    let secret = bench.server.client_secret();
    for (value, code) in [
        (format!("{secret}#"), 4),
        (format!("'{secret} #'"), 4),
        (secret.to_owned(), 0),
    ] {
        bench.write("tds.env", format!("TDS_CLIENT_SECRET={value}\n"));
        bench.permit("tds.env", 0o600);
        let mut run = bench.tds("check --env-file tds.env");
        run.env_remove("TDS_CLIENT_SECRET");
        ended(&output(run).await, code);
    }
}

#[tokio::test]
async fn addresses_are_shown_without_their_user_and_their_query() {
    let bench = Bench::new().await;
    let auth = bench.server.auth_url();
    let realm = format!("{auth}/auth/realms/ServiceConnect/protocol/openid-connect/token");
    for more in ["", "--json"] {
        let mut run = bench.tds(&format!("check /v1/live/bus {more}"));
        run.env_remove("TDS_AUTH_URL")
            .env("TDS_TOKEN_URL", format!("{realm}?apikey=s3cr3t"));
        let run = output(run).await;
        let all = out(&run) + &err(&run);
        assert!(!all.contains("s3cr3t"), "{all}");
        assert!(out(&run).contains(&realm), "{all}");
        says(&run, "TDS_TOKEN_URL has a query");
    }
}

#[tokio::test]
async fn passwords_in_addresses_obey_the_rules_for_secrets() {
    let bench = Bench::new().await;
    for (flag, name, value) in [
        ("--fleet", "TDS_FLEET_STORE", "redis://:s3cr3t@127.0.0.1:1"),
        (
            "--fleet",
            "TDS_FLEET_STORE",
            "redis+unix:///none.sock?db=1&pass=s3cr3t",
        ),
        ("--proxy", "TDS_PROXY", "http://u:s3cr3t@127.0.0.1:1"),
    ] {
        let run = bench
            .ends(2, &format!("get /v1/live/bus {flag} {value}"))
            .await;
        says(&run, name);
        assert!(!err(&run).contains("s3cr3t"), "{}", err(&run));
        bench.write("tds.env", format!("{name}={value}\n"));
        bench.permit("tds.env", 0o644);
        let run = bench.ends(2, "get /v1/live/bus --env-file tds.env").await;
        says(&run, "chmod");
    }
    assert_eq!(bench.asked(), (0, 0));
}

#[tokio::test]
async fn a_file_of_certificates_is_named_with_what_is_wrong_and_functions_are_not() {
    let bench = Bench::with(|config| config.tls = true).await;
    let pem = fs::read_to_string(bench.server.ca_file().expect("it speaks TLS")).expect("text");
    let trusted = pem.replace("CERTIFICATE", "TRUSTED CERTIFICATE");
    for (bytes, told) in [
        (&b""[..], "empty"),
        (b"\x30\x82\x01", "DER"),
        (trusted.as_bytes(), "TRUSTED"),
        (b"\xff\xfe-\0", "mark"),
        (format!("\u{feff}{pem}").as_bytes(), "mark"),
        (b"hello", "no certificate"),
    ] {
        bench.write("ca.pem", bytes);
        for name in ["TDS_CA_FILE", "SSL_CERT_FILE"] {
            let mut run = bench.tds("get /v1/live/bus --deadline 5s");
            run.env(name, "ca.pem");
            let run = output(run).await;
            ended(&run, 2);
            says(&run, &format!("{name}: ca.pem"));
            says(&run, told);
        }
    }
    // Without the service's CA.
    let mut run = bench.tds("get /v1/live/bus --deadline 5s");
    run.env_remove("SSL_CERT_FILE");
    let run = output(run).await;
    ended(&run, 5);
    says(&run, "--ca or TDS_CA_FILE");
    assert!(!err(&run).contains("::"), "{}", err(&run));
}
