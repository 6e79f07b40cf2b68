//! State that processes with one key share on one machine: the token, and their turns to start.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::say::warn;
use tower_tds::layers::token::store;

/// The files of one key: its token, and the stamp of its last start.
#[derive(Debug)]
pub(crate) struct State {
    token: PathBuf,
    stamp: PathBuf,
}

// === impl State ===

impl State {
    /// Opens or creates the folder. If that fails, it prints a warning, and nothing is shared.
    pub(crate) fn open(folder: Option<PathBuf>, key: &[&str]) -> Option<Self> {
        let Some(folder) = folder.or_else(usual) else {
            warn("tds: no folder for the token (TDS_STATE_DIR, HOME): each start asks for one");
            return None;
        };
        if let Err(error) = private(&folder) {
            let folder = folder.display();
            warn(&format!(
                "tds: {folder}: {error}; each start asks for a token of its own"
            ));
            return None;
        }
        // One file per token. The name is a hash, because a key may contain characters that a file
        // name cannot.
        let mut hash = DefaultHasher::new();
        key.hash(&mut hash);
        let name = format!("{:016x}", hash.finish());
        Some(Self {
            token: folder.join(format!("token-{name}")),
            stamp: folder.join(format!("start-{name}")),
        })
    }

    pub(crate) fn tokens(&self) -> store::File {
        store::File::new(&self.token)
    }

    /// Takes the next turn to send one request. Returns the wait until then.
    ///
    /// The requests of processes that start at once are spread within the service's rate.
    pub(crate) async fn turn(&self) -> Duration {
        let path = self.stamp.clone();
        let turn = tokio::task::spawn_blocking(move || turn(&path)).await;
        match turn.map_err(io::Error::other).flatten() {
            Ok(wait) => wait,
            Err(error) => {
                warn(&format!("tds: {}: {error}", self.stamp.display()));
                Duration::ZERO
            }
        }
    }

    /// The message if there was no turn. Nothing is sent then, because others may be about to send.
    pub(crate) fn held(&self) -> String {
        let stamp = self.stamp.display();
        format!(
            "{stamp}: another process holds it for longer than --deadline, and nothing was sent"
        )
    }
}

fn turn(path: &Path) -> io::Result<Duration> {
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    // The lock is held for a read and a write. It ends with the process at the latest.
    file.lock()?;
    let mut text = Vec::new();
    Read::by_ref(&mut file).take(64).read_to_end(&mut text)?;
    let now = now();
    let last = String::from_utf8_lossy(&text)
        .trim()
        .parse()
        .map_or(Duration::ZERO, Duration::from_millis);
    let next = last.saturating_add(SPACING);
    // A stamp from the future shows that the clock was set back: the file is newer than now, or the
    // stamp is later than any turn.
    let written = file.metadata()?.modified()?;
    let written = written.duration_since(UNIX_EPOCH).unwrap_or_default();
    let is_of_another_clock = written > now + STEP;
    let next = if is_of_another_clock || next > now + FARTHEST {
        now
    } else {
        next.max(now)
    };
    file.seek(SeekFrom::Start(0))?;
    file.set_len(0)?;
    file.write_all(next.as_millis().to_string().as_bytes())?;
    Ok(next.saturating_sub(now))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the only clock that processes share; a step of it is told by a stamp too far away"
)]
fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

fn usual() -> Option<PathBuf> {
    let set = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let base = || set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    set("TDS_STATE_DIR").or_else(|| Some(base()?.join("tds")))
}

/// Creates a folder for its owner alone.
fn private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Forty a second of the fifty that the contract allows. The rest is for retries.
const SPACING: Duration = Duration::from_millis(25);

/// The largest difference between the clocks of a machine and its disks.
const STEP: Duration = Duration::from_secs(1);

/// The queue of 2,400 processes.
const FARTHEST: Duration = Duration::from_secs(60);
