//! The program: what it prints, and when it ends.
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, ChildStdout, Command, Output, Stdio},
};

use serde_json::Value;

fn program(switches: &[&str]) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tds-sim"));
    program
        .args(switches)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    program
}

fn signal(child: &Child, signal: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args([signal, &id]).status();
    assert!(sent.unwrap().success());
}

/// Starts the program. Returns its first line, and its output after that.
fn start(switches: &[&str]) -> (Child, Value, BufReader<ChildStdout>) {
    let mut child = program(switches).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    (child, serde_json::from_str(&line).unwrap(), out)
}

/// Ends the program by a signal, and returns the rest of its output.
fn ended(mut child: Child, by: &str, mut out: BufReader<ChildStdout>) -> Value {
    signal(&child, by);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    serde_json::from_str(&rest).unwrap()
}

fn run(switches: &[&str]) -> Output {
    program(switches).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn program_prints_addresses_at_start_and_summary_at_the_end_by_a_signal() {
    for (signal, scheme) in [("-INT", "https"), ("-TERM", "http")] {
        let tls: &[&str] = if scheme == "https" { &["--tls"] } else { &[] };
        let (child, at, out) = start(tls);
        for (name, scheme) in [
            ("auth_url", scheme),
            ("base_url", scheme),
            ("admin_url", "http"),
        ] {
            let start = format!("{scheme}://127.0.0.1:");
            assert!(at[name].as_str().unwrap().starts_with(&start), "{name}");
        }
        assert!(at["client_id"].is_string() && at["client_secret"].is_string());
        let file = at["ca_file"].as_str();
        assert_eq!(
            file.map(|file| std::fs::exists(file).unwrap()),
            (!tls.is_empty()).then_some(true)
        );
        assert_eq!(ended(child, signal, out)["data_calls"], 0);
        assert!(
            file.is_none_or(|file| !std::fs::exists(file).unwrap()),
            "{signal}"
        );
    }
}

#[test]
fn help_is_one_page_and_quota_accepts_plain_seconds() {
    let help = run(&["--help"]);
    let help = text(&help.stdout);
    assert!(help.lines().count() <= 80, "{help}");
    let relay = "relay --to IP:PORT [--there DELAY] [--back DELAY] [--seed SEED] [--port PORT]";
    for part in [
        relay,
        "--quota <CALLS/WINDOW>",
        "lognormal:10ms:200ms",
        "--bind <IP>",
    ] {
        assert!(help.contains(part), "{part}: {help}");
    }
    let (child, _, out) = start(&["--quota", "5/60", "--bind", "127.0.0.1"]);
    ended(child, "-TERM", out);
}

#[test]
fn relay_command_forwards_bytes_and_prints_its_counts() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap().to_string();
    let (child, at, out) = start(&["relay", "--to", &to, "--there", "20ms", "--seed", "7"]);
    let mut client = std::net::TcpStream::connect(at["address"].as_str().unwrap()).unwrap();
    client.write_all(b"through").unwrap();
    let mut seven = [0; 7];
    server.accept().unwrap().0.read_exact(&mut seven).unwrap();
    assert_eq!(&seven, b"through");
    let counts = ended(child, "-TERM", out);
    assert_eq!(
        (&counts["accepted"], &counts["peak"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn malformed_switch_prints_one_line_with_the_expected_form() {
    for line in REFUSED.lines() {
        let (switches, says) = line.split_once(" -> ").unwrap();
        let (names, values) = switches.split_once('|').unwrap();
        for name in names.split(", ") {
            for value in values.split_whitespace() {
                let mut switches: Vec<_> = name.split_whitespace().collect();
                let option = switches.iter().find(|it| it.starts_with("--")).copied();
                switches.push(value.trim_matches('\''));
                let output = run(&switches);
                let error = text(&output.stderr);
                assert_eq!(output.status.code(), Some(2), "{switches:?}");
                assert!(option.is_none_or(|it| error.contains(it)), "{error}");
                assert!(
                    error.starts_with("error: ") && error.contains(says),
                    "{error}"
                );
                assert_eq!(error.lines().count(), 1, "{error}");
                assert!(output.stdout.is_empty());
            }
        }
    }
}

/// Switches, values of the last one, and a part of the error.
const REFUSED: &str = "\
| --frob -> --frob
| --delay-head=-5ms --per=-1s -> `; use
| relay -> required arguments were not provided: --to <IP:PORT>
relay --to | localhost:80 '' -> 127.0.0.1:8082
relay --seed | -1 NaN -> --seed <SEED>
--seed 1 relay --to | 127.0.0.1:1 -> relay
--rate, --connections | 0 00 -> >': 0 refuses every call; use 1 or more, or POST /set
--rate, --connections | -1 1.5 1e3 NaN inf 4294967296 '' -> >': use a whole number
--quota | 0/60 0/60s -> 0 refuses every call; use 1 or more
--quota | many 5 5/0s 5/NaN -1 4294967296/60 '' -> use CALLS/WINDOW
--per, --live-every | 0s 0ns 0 1.5s NaN inf 18446744073709551616s '' -> , such as
--expires-in, --live-bytes, --arrivals-kept, --seed | -1 NaN 18446744073709551616 '' -> invalid
--auth-port, --data-port, --admin-port | -1 65536 NaN '' -> invalid value
--delay-head, --delay-counting | 0 soon NaN pareto:1ms:NaN '' -> pareto:MIN:ALPHA
--rule | guess leaky: leaky:-1 leaky:NaN leaky:4294967296 '' -> leaky:BURST
--fault | 200 999 503:0 503:-1 503:NaN '' -> 5xx[:BURST]
--fault, --token-fault | 503@every:0 503@every:-1 503@NaN 503@-1 503@1.1 503@ -> every:N
--token-fault | sad slow503 '' -> slow:PAUSE
--error-body | yaml '' -> json, text, html, xml, empty
--count-connections | some '' -> accepted, busy; see --help";

#[test]
fn a_port_that_is_taken_is_an_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = run(&["--data-port", &port]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(
        error.starts_with("error: cannot start: the data port is not free; choose another"),
        "{error}"
    );
}
