//! The process of the server. It listens on a free port, and ends when the test process ends, for any
//! reason.

use std::{
    fs,
    io::Write as _,
    net::Ipv4Addr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::sync::OnceCell;
use tower_oidc_cc::TokenEndpoint;

use crate::keycloak::{log, realm, wire};

/// A Keycloak with the realm of the tests.
pub(crate) struct Keycloak {
    port: u16,
    /// Folder that the server may write to; the rest is shared with the installation.
    folder: PathBuf,
    /// Ends when its standard input is closed.
    _process: Option<Child>,
}

// === impl Keycloak ===

impl Keycloak {
    /// The server that all tests share; `None` if it is not installed.
    pub(crate) async fn shared() -> Option<&'static Self> {
        static SHARED: OnceCell<Option<Keycloak>> = OnceCell::const_new();
        let shared = SHARED.get_or_init(Self::start).await.as_ref();
        skip_without(shared)
    }

    async fn start() -> Option<Self> {
        let home = home()?;
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("keycloak-{}", std::process::id()));
        // The script takes the folder above it for the server's, so it is the one real file.
        fs::create_dir_all(folder.join("bin")).unwrap();
        fs::create_dir_all(folder.join("data/import")).unwrap();
        fs::copy(home.join("bin/kc.sh"), folder.join("bin/kc.sh")).unwrap();
        for shared in ["conf", "lib", "providers", "themes"] {
            symlink(home.join(shared), folder.join(shared)).unwrap();
        }
        fs::write(folder.join("data/import/realm.json"), realm::json()).unwrap();
        let mut keycloak = Self {
            port: 0,
            folder,
            _process: None,
        };
        keycloak._process = Some(keycloak.spawn());
        for _ in 0..PATIENCE {
            if let Some(port) = listening(&keycloak.log()) {
                keycloak.port = port;
                return Some(keycloak);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the Keycloak did not start: {}", keycloak.log());
    }

    fn spawn(&self) -> Child {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("log"))
            .unwrap();
        Command::new("sh")
            .args(["-c", RUN])
            .arg(self.folder.join("bin/kc.sh"))
            .args(OPTIONS)
            .env("KC_BOOTSTRAP_ADMIN_USERNAME", ADMIN.0)
            .env("KC_BOOTSTRAP_ADMIN_PASSWORD", ADMIN.1)
            // The process lives for seconds, so only the fast compiler of the JVM is worth its time.
            .env("JAVA_OPTS_APPEND", "-XX:TieredStopAtLevel=1")
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// The address of the server, without a path.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// The address of a place in the realm.
    pub(crate) fn place(&self, path: &str) -> String {
        format!("{}/auth/realms/ServiceConnect/{path}", self.origin())
    }

    /// The token endpoint, with a query that marks the test in the access log.
    pub(crate) fn endpoint(&self, test: &str) -> TokenEndpoint {
        let uri = self.place(&format!("{TOKEN}?test={test}"));
        TokenEndpoint::new(uri.parse().unwrap()).unwrap()
    }

    /// The statuses of the token requests of one test so far, as the access log has them.
    pub(crate) async fn posts(&self, test: &str) -> Vec<u16> {
        log::statuses(
            &self.whole_log().await,
            "POST",
            &format!("{TOKEN}?test={test}"),
        )
    }

    /// The statuses of its data calls, of those that this server answers.
    pub(crate) async fn gets(&self, test: &str) -> Vec<u16> {
        log::statuses(
            &self.whole_log().await,
            "GET",
            &format!("{DATA}?test={test}"),
        )
    }

    /// The access log up to now.
    async fn whole_log(&self) -> String {
        // Lines are written shortly after the responses. So this sends one more request, and waits for
        // its line.
        let mark = format!("/?mark={:032x}", fastrand::u128(..));
        wire::get(&self.place(&mark)).await;
        for _ in 0..PATIENCE {
            let log = self.log();
            if log.contains(&mark) {
                return log;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the Keycloak does not log: {}", self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

/// Where a Keycloak is installed.
fn home() -> Option<PathBuf> {
    if let Some(home) = std::env::var_os("KEYCLOAK_HOME") {
        return Some(home.into());
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let mut homes = fs::read_dir(target.join("keycloak")).ok()?;
    // The script writes the mark last, so that an incomplete installation is not used.
    homes.find_map(|home| Some(home.ok()?.path()).filter(|home| home.join("installed").exists()))
}

/// Prints a line if there is no Keycloak, to standard error, which the test harness does not capture.
fn skip_without<T>(keycloak: Option<T>) -> Option<T> {
    if keycloak.is_none() {
        let says = "SKIPPED: there is no Keycloak; .ci/keycloak installs one\n";
        std::io::stderr().write_all(says.as_bytes()).unwrap();
    }
    keycloak
}

/// The port in the line `.. Listening on: http://127.0.0.1:34567`, once the log has the whole line.
fn listening(log: &str) -> Option<u16> {
    let (_, after) = log.split_once("Listening on: http://127.0.0.1:")?;
    let digits = after.find(|character: char| !character.is_ascii_digit())?;
    after[..digits].parse().ok()
}

/// User of the admin API.
pub(crate) const ADMIN: (&str, &str) = ("admin", "admin");
/// Path of the token endpoint in its realm.
pub(crate) const TOKEN: &str = "protocol/openid-connect/token";
/// Path of the data that it serves itself.
pub(crate) const DATA: &str = "protocol/openid-connect/userinfo";
/// Runs the server until its standard input is closed, which happens when the test process ends. Then
/// removes the folder.
const RUN: &str = r#"
sh "$0" "$@" </dev/null &
cat
kill $!
wait $!
rm -rf "${0%/bin/*}"
"#;
const OPTIONS: [&str; 10] = [
    "start",
    "--db=dev-file",
    "--http-relative-path=/auth",
    "--http-enabled=true",
    "--http-port=0",
    "--http-host=127.0.0.1",
    "--hostname-strict=false",
    "--cache=local",
    "--import-realm",
    "--http-access-log-enabled=true",
];
/// Most checks while a test waits: five minutes in steps of 100 ms.
const PATIENCE: usize = 3_000;
