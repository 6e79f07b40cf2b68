//! The jobs as their users run them: processes, against a simulated service and its ledger.

#![expect(clippy::expect_used, reason = "a surprise in a test is a failed test")]

mod access;
mod answers;
mod backend;
mod browser;
mod bulk;
mod canary;
mod clients;
mod container;
mod fleet;
mod get;
mod origin;
mod output;
mod poll;
mod proxy;
mod representation;
mod scenarios;
mod serving;
mod settings;
mod signals;
mod stack;
mod status;
mod terminal;
mod upstream;
mod usage;
mod whole;

use std::{
    fs,
    io::{Write as _, stderr},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::Once,
};

use tds_sim::{Config, Server};
use tokio::{
    signal::unix::SignalKind,
    task::JoinSet,
    time::{Duration, sleep, timeout},
};

/// A service, and a folder for one test, with the key of the service.
struct Bench {
    server: Server,
    folder: PathBuf,
}

// === impl Bench ===

impl Bench {
    async fn new(name: &str, config: Config) -> Self {
        let server = Server::start(config).await.expect("free ports");
        Self {
            server,
            folder: folder(name),
        }
    }

    /// `tds` with these arguments, and the settings of the service.
    ///
    /// Users of a backend wait two seconds by default, of which the limits spend the first in silence. A machine that stalls for
    /// the other takes a response for a late one, so a test that is not about the deadline gets a long one.
    fn tds(&self, arguments: &[&str]) -> Command {
        let mut command = tds(arguments);
        if arguments.first() == Some(&"backend") && !arguments.contains(&"--deadline") {
            command.args(["--deadline", "1h"]);
        }
        command
            .env("TDS_AUTH_URL", self.server.auth_url())
            .env("TDS_BASE_URL", self.server.base_url())
            .env("TDS_CLIENT_ID", self.server.client_id())
            .env("TDS_CLIENT_SECRET", self.server.client_secret())
            .env("TDS_STATE_DIR", self.path("state"));
        command
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        output(self.tds(arguments)).await
    }

    /// Waits until the service has seen enough.
    async fn seen(&self, enough: impl Fn(&tds_sim::Summary) -> bool) {
        let waited = async {
            while !enough(&self.server.ledger().summary()) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let seen = timeout(HANGS, waited).await;
        seen.expect("a job that is still of use is not so slow");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// `tds` with these arguments and no settings.
fn tds(arguments: &[&str]) -> Command {
    default_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tds"));
    for name in NAMES.into_iter() {
        command.env_remove(name);
    }
    command.args(arguments);
    command
}

async fn output(mut command: Command) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    end(command.spawn().expect("the program starts")).await
}

/// Many times as long as any job takes on a busy machine. A job that hangs fails its test.
const HANGS: Duration = Duration::from_secs(90);

/// Runs one test for each case, all at once: they wait more than they compute.
async fn at_once<C, T>(cases: impl IntoIterator<Item = C>, test: impl Fn(C) -> T)
where
    T: Future<Output = ()> + Send + 'static,
{
    let mut tests = JoinSet::new();
    for case in cases {
        tests.spawn(test(case));
    }
    tests.join_all().await;
}

/// Sends a signal to a process.
fn signal(child: &Child, signal: &str) {
    signal_to(&child.id().to_string(), signal);
}

fn signal_to(pid: &str, signal: &str) {
    let sent = Command::new("kill").args([signal, pid]).status();
    assert!(sent.expect("kill is there").success());
}

/// Waits for the end of a process that was started with pipes.
async fn end(child: Child) -> Output {
    let pid = child.id().to_string();
    let run = tokio::task::spawn_blocking(move || child.wait_with_output());
    let Ok(run) = timeout(HANGS, run).await else {
        // Kills the process, because the runtime would otherwise wait for it as well.
        drop(Command::new("kill").args(["-KILL", &pid]).status());
        unreachable!("it hangs");
    };
    run.expect("no panic").expect("it ends")
}

/// Runs the command in another program, with the same settings.
fn by(program: &str, arguments: &[&str], plain: &Command) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

fn piped(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

/// Whether a program that a test needs is missing. The line goes around the test harness, which hides what a macro prints in a
/// test that passes.
fn skipped(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output();
    if let Err(error) = &there {
        let package = match program {
            "promtool" => "prometheus",
            "script" => "bsdutils",
            "node" => "nodejs",
            "unshare" => "util-linux",
            other => other,
        };
        writeln!(
            stderr(),
            "SKIPPED: {program}: {error}; to run this test install it and put it on the PATH: apt-get install {package}"
        )
        .expect("stderr is open");
    }
    there.is_err()
}

/// Makes children start with the default action of each signal that tests send, however this process was started.
///
/// A shell starts a background job with SIGINT ignored, and nohup its command with SIGHUP ignored. An ignored signal stays ignored in
/// a child. A signal with a handler gets the default action in a child, at its exec (POSIX, `exec`). Only ignored signals get a
/// handler here, so that Ctrl-C still ends the tests.
fn default_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        for kind in [
            SignalKind::hangup(),
            SignalKind::interrupt(),
            SignalKind::terminate(),
        ] {
            let bit = 1 << (kind.as_raw_value() - 1);
            if ignored.is_some_and(|ignored| ignored & bit != 0) {
                // The handler stays when the stream is dropped.
                drop(tokio::signal::unix::signal(kind).expect("a handler"));
            }
        }
    });
}

/// The body of the simulated service at `/v1/live/NAME`.
fn live(name: &str) -> String {
    let start = format!("{{\"name\":\"{name}\",\"status\":\"on time\",\"note\":\"");
    format!("{start}{}\"}}\n", "-".repeat(128 - start.len() - 3))
}

fn folder(name: &str) -> PathBuf {
    let folder = tempfile::Builder::new()
        .prefix(&format!("tds-{name}-"))
        .tempdir();
    folder.expect("a folder of its own").keep()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const NAMES: [&str; 16] = [
    "TDS_PROXY",
    "TDS_TOKEN_URL",
    "TDS_DISCOVER",
    "TDS_CA_FILE",
    "TDS_FLEET_STORE",
    "TDS_FLEET_NAME",
    "TDS_RATE",
    "TDS_CONNECTIONS",
    "TDS_SHARE",
    "TDS_LOG",
    "TDS_AUTH_URL",
    "TDS_BASE_URL",
    "TDS_CLIENT_ID",
    "TDS_CLIENT_SECRET",
    "TDS_CLIENT_SECRET_FILE",
    "TDS_STATE_DIR",
];
