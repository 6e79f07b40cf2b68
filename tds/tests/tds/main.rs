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
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::Once,
};

use futures_util::future::join_all;
use serde_json::Value;
use tds_sim::{Config, Faults, Server, Summary};
use tempfile::TempDir;
use tokio::{
    signal::unix::SignalKind,
    time::{Duration, sleep, timeout},
};

use crate::{serving::Serving, upstream::Upstream};

/// A service, and the folder in which a test runs its jobs with the key of the service.
struct Bench {
    server: Server,
    folder: TempDir,
    /// Data service in place of the simulated one, if the test writes its answers.
    upstream: Option<Upstream>,
}

// === impl Bench ===

impl Bench {
    async fn new() -> Self {
        Self::with(|_| ()).await
    }

    async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        change(&mut config);
        let folder = tempfile::Builder::new().prefix("tds-").tempdir();
        Self {
            server: Server::start(config).await.expect("free ports"),
            folder: folder.expect("a folder of its own"),
            upstream: None,
        }
    }

    /// With a data service that answers in this way: by the head of a request, and the number of requests before it.
    async fn of(answer: impl Fn(&str, usize) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let upstream = Some(Upstream::start(answer));
        let bench = Self::new().await;
        Self { upstream, ..bench }
    }

    /// `tds` with this command line, in the folder and with the settings of the service.
    ///
    /// Users of a backend wait two seconds by default, of which the limits spend the first in silence. A machine that stalls for
    /// the other takes a response for a late one, so a test that is not about the deadline gets a long one.
    fn tds(&self, line: &str) -> Command {
        let mut command = tds(line);
        if line.starts_with("backend ") && !line.contains("--deadline") {
            command.args(["--deadline", "1h"]);
        }
        let base = self.upstream.as_ref();
        let base = base.map_or(self.server.base_url(), |upstream| &upstream.url);
        command
            .current_dir(&self.folder)
            .env("TDS_AUTH_URL", self.server.auth_url())
            .env("TDS_BASE_URL", base)
            .env("TDS_CLIENT_ID", self.server.client_id())
            .env("TDS_CLIENT_SECRET", self.server.client_secret())
            .env("TDS_STATE_DIR", "state");
        command
    }

    /// `tds bulk` of these lines into `files`.
    fn bulk(&self, lines: &str, more: &str) -> Command {
        self.list(lines);
        let bulk = "bulk --list list --out files --json --rerun rerun";
        self.tds(&format!("{bulk} {more}"))
    }

    /// `tds poll` of these lines into `files`.
    fn poll(&self, lines: &str, more: &str) -> Command {
        self.list(lines);
        self.tds(&format!("poll --list list --out files {more}"))
    }

    /// Starts a backend.
    fn serve(&self, more: &str) -> Serving {
        Serving::start(self.tds(&format!("backend --listen 127.0.0.1:0 {more}")))
    }

    async fn run(&self, line: &str) -> Output {
        output(self.tds(line)).await
    }

    /// Runs a job, and expects its exit code.
    async fn ends(&self, code: i32, line: &str) -> Output {
        let run = self.run(line).await;
        assert_eq!(
            run.status.code(),
            Some(code),
            "{line}: {}{}",
            out(&run),
            err(&run)
        );
        run
    }

    /// Sets all faults: those of data, those of the token endpoint with `token=` before them, and the delay of a `head=`.
    fn fail(&self, faults: &str) {
        let mut all = Faults::default();
        for fault in faults.split_whitespace() {
            match fault.split_once('=') {
                Some(("token", fault)) => all.token.push(fault.parse().expect("a fault")),
                Some(("head", delay)) => all.before_head = delay.parse().expect("a delay"),
                _ => all.data.push(fault.parse().expect("a fault")),
            }
        }
        self.server.sim().set_faults(all);
    }

    fn summary(&self) -> Summary {
        self.server.ledger().summary()
    }

    /// The requests for tokens and for data so far.
    fn asked(&self) -> (u64, u64) {
        let seen = self.summary();
        (seen.token_posts, seen.data_calls)
    }

    /// Waits until the service has seen enough.
    async fn seen(&self, enough: impl Fn(&Summary) -> bool) {
        until(async || enough(&self.summary())).await;
    }

    /// The heads of the requests to a data service of the test's own.
    fn heads(&self) -> Vec<String> {
        self.upstream.as_ref().expect("it has one").heads()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn list(&self, lines: &str) {
        fs::write(self.path("list"), lines).expect("a file");
    }

    fn write(&self, name: &str, data: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, data).expect("a file");
    }

    /// The bytes of a file of the job.
    fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.path("files").join(name)).expect("it is there")
    }

    /// The names in the folder of the job.
    fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.path("files")).expect("the folder");
        let names = files.map(|file| file.expect("a file").file_name());
        let mut names: Vec<_> = names
            .map(|name| name.into_string().expect("text"))
            .collect();
        names.retain(|name| ![".tds.lock", ".tds-manifest.jsonl"].contains(&&**name));
        names.sort();
        names
    }
}

/// `tds` with this command line and no settings.
fn tds(line: &str) -> Command {
    default_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tds"));
    for name in SETTINGS.split_whitespace() {
        command.env_remove(format!("TDS_{name}"));
    }
    command.args(line.split_whitespace());
    command
}

async fn output(command: Command) -> Output {
    end(piped(command)).await
}

fn piped(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program starts")
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

/// Expects an exit code.
#[track_caller]
fn ended(run: &Output, code: i32) {
    assert_eq!(run.status.code(), Some(code), "{}{}", out(run), err(run));
}

/// Expects a text on the standard error.
#[track_caller]
fn says(run: &Output, text: &str) {
    assert!(err(run).contains(text), "{text}: {}", err(run));
}

/// Waits until this is so.
async fn until(mut is: impl AsyncFnMut() -> bool) {
    let waited = async {
        while !is().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(HANGS, waited).await.expect("it comes to that");
}

/// Runs one test for each case, all at once: they wait more than they compute.
async fn at_once<C, T: Future<Output = ()>>(
    cases: impl IntoIterator<Item = C>,
    test: impl Fn(C) -> T,
) {
    join_all(cases.into_iter().map(test)).await;
}

/// Sends a signal to a process.
fn signal(child: &Child, signal: &str) {
    signal_to(&child.id().to_string(), signal);
}

fn signal_to(pid: &str, signal: &str) {
    let sent = Command::new("kill").args([signal, pid]).status();
    assert!(sent.expect("kill is there").success());
}

/// Runs the command in another program, in the same folder and with the same settings.
fn by(program: &str, arguments: &[&str], plain: &Command) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(folder) = plain.get_current_dir() {
        command.current_dir(folder);
    }
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// The command as a line for a shell.
fn line(plain: &Command) -> String {
    let words = plain.get_args().map(|word| word.to_str().expect("text"));
    let program = env!("CARGO_BIN_EXE_tds");
    words.fold(program.to_owned(), |line, word| line + " " + word)
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

/// The path of a request.
fn path_of(head: &str) -> &str {
    head.split(' ').nth(1).expect("a path")
}

/// The values of lines of JSON.
fn events(lines: &str) -> Vec<Value> {
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// The standard error without the waits that a job tells, which on a busy machine any job may have.
fn err(output: &Output) -> String {
    told(output).1
}

/// The waits that a job told.
fn waits(output: &Output) -> String {
    told(output).0
}

fn told(output: &Output) -> (String, String) {
    let text = String::from_utf8_lossy(&output.stderr);
    let is_wait = |line: &&str| line.starts_with("tds: waiting for ");
    text.split_inclusive('\n').partition(is_wait)
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Many times as long as any job takes on a busy machine. A job that hangs fails its test.
const HANGS: Duration = Duration::from_secs(170);

const SETTINGS: &str = "PROXY TOKEN_URL DISCOVER CA_FILE FLEET_STORE FLEET_NAME RATE CONNECTIONS SHARE LOG AUTH_URL BASE_URL \
                        CLIENT_ID CLIENT_SECRET CLIENT_SECRET_FILE STATE_DIR";
