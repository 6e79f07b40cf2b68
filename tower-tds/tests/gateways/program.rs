//! A gateway's process: its folder, its port, its end.

use std::{
    fs,
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use tokio::{net::TcpStream, time::sleep};

/// A running program and its folder. Its drop stops the program and removes the folder.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    folder: Folder,
}

#[derive(Debug)]
struct Folder(PathBuf);

// === impl Program ===

impl Program {
    /// Starts what `command` makes of a folder, and waits until it accepts connections.
    ///
    /// Returns `None` if it ends or does not accept in time, and prints its output.
    pub(crate) async fn start(
        address: SocketAddr,
        command: impl FnOnce(&Path) -> Command,
    ) -> Option<Self> {
        let folder = Folder::new();
        let mut command = command(&folder.0);
        // Opened to append, because a program's threads write lines at the same time, and none may
        // overwrite another's.
        let mut options = fs::OpenOptions::new();
        options.create(true).append(true);
        let file = |name| options.open(folder.0.join(name)).expect("a new file");
        let child = command
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .expect("it was found a moment ago");
        let mut program = Self { child, folder };
        // There is nothing to wait for but the port itself.
        for _ in 0..500 {
            if TcpStream::connect(address).await.is_ok() {
                return Some(program);
            }
            if program.child.try_wait().expect("it is a child").is_some() {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        say(&format!("did not start: {}", program.text("stderr")));
        None
    }

    /// Returns the text of a file in the folder; empty if there is no such file yet.
    pub(crate) fn text(&self, file: &str) -> String {
        fs::read_to_string(self.folder.0.join(file)).unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // A process that has ended already needs no kill.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

// === impl Folder ===

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "gateway-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, SeqCst)
        );
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).expect("a folder beside the build");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed is left for `cargo clean`.
        fs::remove_dir_all(&self.0).ok();
    }
}

/// The path of a program: in the `PATH`, or in `/usr/sbin`, where some systems keep servers.
pub(crate) fn find(name: &str) -> Option<String> {
    [name.to_owned(), format!("/usr/sbin/{name}")]
        .into_iter()
        .find(|program| Command::new(program).arg("-v").output().is_ok())
}

/// A local address without a listener at the moment.
pub(crate) fn free() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("it is bound")
}

/// Prints a line that the test harness does not capture.
pub(crate) fn say(line: &str) {
    writeln!(io::stderr(), "{line}").ok();
}
