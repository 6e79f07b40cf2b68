//! A gateway's process: its folder, its socket, its end.

use std::{
    fs,
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

/// A running program and its folder. Its drop stops the program and removes the folder.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    folder: Folder,
    address: SocketAddr,
}

#[derive(Debug)]
struct Folder(PathBuf);

// === impl Program ===

impl Program {
    /// Starts what `command` makes of a folder and an address, and waits until it serves.
    ///
    /// The program listens on its standard input, which is a socket that this process has bound. With
    /// a free port instead, another test could get that port first, and answer here.
    pub(crate) async fn start(command: impl FnOnce(&Path, SocketAddr) -> Command) -> Self {
        let folder = Folder::new();
        let socket = TcpSocket::new_v4().expect("a socket");
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        socket.bind(any).expect("a free port");
        let listener = socket.listen(1_024).expect("it is bound");
        let address = listener.local_addr().expect("it is bound");
        let listener = listener.into_std().expect("a plain socket");
        // Opened to append, because a program's threads write lines at the same time, and none may
        // overwrite another's.
        let mut options = fs::OpenOptions::new();
        options.create(true).append(true);
        let file = |name| options.open(folder.0.join(name)).expect("a new file");
        let child = command(&folder.0, address)
            .stdin(OwnedFd::from(listener))
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .expect("it was found a moment ago");
        let program = Self {
            child,
            folder,
            address,
        };
        // A socket without a request, which a program that serves closes too. One that has ended
        // resets it.
        let served = async {
            let mut socket = TcpStream::connect(address).await?;
            socket.shutdown().await?;
            socket.read_to_end(&mut Vec::new()).await
        };
        let served = served.await;
        assert!(served.is_ok(), "{served:?}: {}", program.text("stderr"));
        program
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the text of a file in the folder; empty if there is no such file yet.
    pub(crate) fn text(&self, file: &str) -> String {
        fs::read_to_string(self.folder.0.join(file)).unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Not a kill, which the workers of nginx outlive. A process that has ended needs neither.
        let id = self.child.id().to_string();
        Command::new("kill").arg(id).status().ok();
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

/// Prints a line that the test harness does not capture.
pub(crate) fn say(line: &str) {
    writeln!(io::stderr(), "{line}").ok();
}
