//! The processes: each is started on a free port, and ends with its standard input.

use std::{
    fs,
    io::Write as _,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tower_oidc_cc::TokenEndpoint;

/// A running authorization server with one client, `client`.
pub(crate) struct Server {
    kind: Kind,
    life: u32,
    /// Format of its tokens: `opaque` or `jwt`.
    format: &'static str,
    port: u16,
    log: PathBuf,
    starts: usize,
    orders: usize,
    process: Option<Child>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    OidcProvider,
    Authlib,
}

// === impl Server ===

impl Server {
    /// Starts the servers that are installed, with opaque tokens of `life` seconds.
    pub(crate) async fn all(test: &str, life: u32) -> Vec<Self> {
        Self::all_of(test, life, "opaque").await
    }

    /// Starts the servers with signed tokens that live for a day.
    pub(crate) async fn all_signed(test: &str) -> Vec<Self> {
        Self::all_of(test, 86_400, "jwt").await
    }

    async fn all_of(test: &str, life: u32, format: &'static str) -> Vec<Self> {
        let mut servers = Vec::new();
        for kind in [Kind::OidcProvider, Kind::Authlib] {
            if kind.command().is_none() {
                let line = format!("SKIPPED: there is no {kind:?}; .ci/servers installs it\n");
                std::io::stderr().write_all(line.as_bytes()).unwrap();
                continue;
            }
            let log = format!("{kind:?}-{test}-{}.log", std::process::id());
            let mut server = Self {
                kind,
                life,
                format,
                port: 0,
                log: Path::new(env!("CARGO_TARGET_TMPDIR")).join(log),
                starts: 0,
                orders: 0,
                process: None,
            };
            server.start("secret").await;
            servers.push(server);
        }
        servers
    }

    /// Starts the server, with new keys and without the tokens of an earlier start. The first start
    /// takes a free port, and the later ones take that port.
    pub(crate) async fn start(&mut self, secret: &str) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(&self.log);
        let log = log.unwrap();
        let (mut command, last) = self.kind.command().unwrap();
        command
            .args([&self.port.to_string(), secret, &self.life.to_string()])
            .arg(self.format)
            .args(last)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.process = Some(command.spawn().unwrap());
        self.starts += 1;
        let starts = self.starts;
        let listens = |log: &str| listening(log).count() == starts;
        let log = self.until(listens).await;
        self.port = listening(&log).last().unwrap();
    }

    /// Changes the running server: `secret NEW`, or `keys` for other keys in place of its own.
    pub(crate) async fn change(&mut self, order: &str) {
        let process = self.process.as_mut().unwrap();
        writeln!(process.stdin.as_mut().unwrap(), "{order}").unwrap();
        self.orders += 1;
        let orders = self.orders;
        self.until(|log| log.matches("Done").count() == orders)
            .await;
    }

    /// Stops the server, and returns when it is gone.
    pub(crate) fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.stdin.take());
            process.wait().unwrap();
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self, path: &str) -> String {
        format!("http://{}:{}{path}", Ipv4Addr::LOCALHOST, self.port)
    }

    pub(crate) fn endpoint(&self) -> TokenEndpoint {
        TokenEndpoint::new(self.address("/token").parse().unwrap()).unwrap()
    }

    /// The statuses of the token requests so far. Waits until there are `count` or more.
    pub(crate) async fn posts(&self, count: usize) -> Vec<u16> {
        let log = self.until(|log| statuses(log).len() >= count).await;
        statuses(&log)
    }

    /// The log, once it fulfils a condition.
    async fn until(&self, is_met: impl Fn(&str) -> bool) -> String {
        for _ in 0..PATIENCE {
            let log = fs::read_to_string(&self.log).unwrap();
            if is_met(&log) {
                return log;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{}", fs::read_to_string(&self.log).unwrap());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        drop(fs::remove_file(&self.log));
    }
}

// === impl Kind ===

impl Kind {
    /// The program and its last argument, if it is installed.
    fn command(self) -> Option<(Command, Option<PathBuf>)> {
        let installed = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .parent()?
            .join("servers");
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tower-oidc-cc/tests/servers");
        let (program, script, last) = match self {
            Self::OidcProvider => {
                let modules = installed.join("node_modules");
                let has_it = modules.join("oidc-provider").exists();
                has_it.then_some(("node".into(), "oidc_provider.mjs", Some(modules)))?
            }
            Self::Authlib => (
                installed.join("python/bin/python"),
                "authlib_server.py",
                None,
            ),
        };
        let mut command = Command::new(&program);
        command.arg(scripts.join(script));
        (program.exists() || !program.is_absolute()).then_some((command, last))
    }
}

/// The ports of the starts in `log`, from lines that have ended.
fn listening(log: &str) -> impl Iterator<Item = u16> {
    let ended = log.rsplit_once('\n').map_or("", |(ended, _)| ended);
    let ports = ended
        .lines()
        .filter_map(|line| line.strip_prefix("Listening "));
    ports.map(|port| port.parse().unwrap())
}

/// The statuses of the token requests in `log`. The server may be writing its last line, so only
/// lines that have ended count.
fn statuses(log: &str) -> Vec<u16> {
    let ended = log.rsplit_once('\n').map_or("", |(ended, _)| ended);
    let posts = ended
        .lines()
        .filter_map(|line| line.strip_prefix("POST /token "));
    posts.map(|status| status.parse().unwrap()).collect()
}

#[test]
fn incomplete_log_line_is_not_a_status() {
    let log = "ready\nPOST /token 200\nPOST /token 4";
    assert_eq!(statuses(log), [200]);
    assert!(statuses("POST /token ").is_empty());
}

/// Most checks while a test waits: a minute in steps of 10 ms.
const PATIENCE: usize = 6_000;
