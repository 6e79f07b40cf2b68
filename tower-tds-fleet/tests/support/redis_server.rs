//! A redis-server for one test, on a socket in its own folder. It ends with the test.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use redis::{Client, Connection};

/// A server that is killed on drop.
///
/// `REDIS_SERVER` names another program that takes the same arguments, such as `valkey-server`.
pub(crate) struct RedisServer {
    process: Child,
    /// Kept, so that the server can write to it.
    log: BufReader<ChildStdout>,
    folder: PathBuf,
    arguments: Vec<String>,
}

// === impl RedisServer ===

impl RedisServer {
    /// Prints SKIPPED and returns `None` if the program is not installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(|_| [])
    }

    /// Starts a server with more settings, which may name files in its folder.
    ///
    /// The settings are created for each of five attempts, because a port that was free may be
    /// taken.
    pub(crate) fn start_with<const N: usize>(
        mut settings: impl FnMut(&Path) -> [(&'static str, String); N],
    ) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Short, since the path of a socket may have 108 bytes.
        let name = format!("tds-redis-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("redis-server");
        let mut attempts = 0;
        loop {
            let settings = settings(&folder).into_iter();
            let pair = |(name, value): (&str, _)| [name.to_owned(), value];
            let arguments: Vec<_> = settings.flat_map(pair).collect();
            match run(&folder, &arguments) {
                Ok((process, log)) => {
                    return Some(Self {
                        process,
                        log,
                        folder,
                        arguments,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let says = b"SKIPPED: redis-server is not installed\n";
                    io::stderr().write_all(says).expect("redis-server");
                    fs::remove_dir_all(&folder).expect("redis-server");
                    return None;
                }
                Err(error) => {
                    attempts += 1;
                    assert!(attempts < 5, "redis-server does not start: {error}");
                }
            }
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join(SOCKET)
    }

    pub(crate) fn client(&self) -> Client {
        Client::open(self.url()).expect("redis-server")
    }

    /// A client of a user whose password is `password`.
    pub(crate) fn client_of(&self, user: &str) -> Client {
        let url = format!("{}?user={user}&pass=password", self.url());
        Client::open(url).expect("redis-server")
    }

    /// A blocking connection for the test itself.
    pub(crate) fn connection(&self) -> Connection {
        self.client().get_connection().expect("redis-server")
    }

    /// Ends the server as a crash does.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("redis-server");
        self.process.wait().expect("redis-server");
    }

    /// Starts an empty server in its place, after [`kill`](Self::kill).
    pub(crate) fn restart(&mut self) {
        (self.process, self.log) = run(&self.folder, &self.arguments).expect("redis-server");
    }

    /// Stops the server: the system still accepts connections, and nothing is answered.
    pub(crate) fn hang(&self) {
        signal(&self.process, "-STOP");
    }

    /// Continues the server.
    pub(crate) fn go_on(&self) {
        signal(&self.process, "-CONT");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
        drop(fs::remove_dir_all(&self.folder));
    }
}

pub(crate) fn signal(process: &Child, signal: &str) {
    let mut kill = Command::new("kill");
    kill.arg(signal).arg(process.id().to_string());
    assert!(kill.status().expect("a program").success(), "{signal}");
}

/// The value of an option, or the end of a test that cannot run here.
macro_rules! or_skip {
    ($option:expr) => {
        match $option {
            Some(value) => value,
            None => return,
        }
    };
}
pub(crate) use or_skip;

/// A port that was free.
pub(crate) fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    free.local_addr().expect("a port").port()
}

/// Runs the server until it is ready.
fn run(folder: &Path, arguments: &[String]) -> io::Result<(Child, BufReader<ChildStdout>)> {
    let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    drop(fs::remove_file(folder.join(SOCKET)));
    let mut process = Command::new(program)
        .args(["--port", "0", "--unixsocket"])
        .arg(folder.join(SOCKET))
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(folder)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut log = BufReader::new(process.stdout.take().expect("redis-server"));
    let mut said = String::new();
    while !said.contains("eady to accept connections") {
        let more = log.read_line(&mut said)?;
        if more == 0 {
            process.wait()?;
            return Err(io::Error::other(said));
        }
    }
    Ok((process, log))
}

const SOCKET: &str = "redis.sock";
