//! Pastes the README's commands into a shell, beside the program, and compares what they print.
use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

/// Program, killed with its test.
struct Program(Child);

impl Program {
    fn start() -> (Self, Value) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tds-sim"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        (Self(child), serde_json::from_str(&line).unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.0.kill());
        self.0.wait().unwrap();
    }
}

/// The commands of each block and what they print.
fn examples() -> Vec<(&'static str, &'static str)> {
    let blocks = README.split("\n```sh\n").skip(1);
    blocks
        .map(|block| {
            let (commands, rest) = block.split_once("\n```\n").unwrap();
            let rest = rest
                .strip_prefix("```text\n")
                .expect("each block says what it prints");
            (commands, rest.split_once("```").unwrap().0)
        })
        .collect()
}

#[test]
fn readme_commands_print_the_documented_output() {
    if Command::new("curl").arg("--version").output().is_err() {
        // Written around the capture of the test harness, so that `.ci/run` finds the line.
        writeln!(std::io::stderr(), "SKIPPED: there is no curl").unwrap();
        return;
    }
    let (program, at) = Program::start();
    let examples = examples();
    // One shell for all, because later commands use what earlier ones have set.
    let mut script = String::new();
    for (commands, _) in &examples {
        script.push_str(&format!("{commands}\nprintf '{MARK}'\n"));
    }
    let mut shell = Command::new("sh");
    for name in [
        "auth_url",
        "base_url",
        "admin_url",
        "client_id",
        "client_secret",
    ] {
        shell.env(name, at[name].as_str().unwrap());
    }
    // curl must not use a proxy for the loopback interface.
    shell.env("no_proxy", "127.0.0.1");
    let output = shell.arg("-c").arg(&script).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let printed: Vec<_> = printed.split(MARK).collect();
    assert_eq!(printed.len(), examples.len() + 1);
    for ((commands, expected), printed) in examples.iter().zip(printed) {
        assert_eq!(printed, *expected, "\n{commands}");
    }
    drop(program);
}

#[test]
fn readme_shows_the_key_of_the_default_seed() {
    let (_program, at) = Program::start();
    for name in ["client_id", "client_secret"] {
        assert!(README.contains(at[name].as_str().unwrap()), "{name}");
    }
}

const README: &str = include_str!("../../README.md");

const MARK: &str = "\u{1e}";
