//! State that the processes with one key share on one machine: their token, and their turns to
//! send.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tower_tds::{Limits, Quota, layers::token::FileStore};

use crate::output::warn;

/// Files of one key: its token, and the turn of its last start.
#[derive(Debug)]
pub(crate) struct State {
    token: PathBuf,
    stamp: PathBuf,
    /// Time between two starts that keeps the limits.
    spacing: Duration,
}

// === impl State ===

impl State {
    /// Opens or creates the folder. If that fails, this prints a warning and returns `None`:
    /// nothing is shared.
    pub(crate) fn open(folder: Option<&str>, key: &[&str], limits: &Limits) -> Option<Self> {
        let Some(folder) = folder.map(Path::new) else {
            warn(
                "no folder to keep the token in (set TDS_STATE_DIR or HOME): each run requests a new one",
            );
            return None;
        };
        if let Err(error) = private(folder) {
            let folder = folder.display();
            warn(&format!("{folder}: {error}; each run requests a new token"));
            return None;
        }
        // Each key has its own file, named by a hash because a key may contain characters that a
        // file name cannot.
        let mut hash = DefaultHasher::new();
        key.hash(&mut hash);
        let name = format!("{:016x}", hash.finish());
        // Starts use four fifths of the rate, which leaves the rest for retries.
        let spacing = |quota: &Quota| quota.per() * 5 / 4 / quota.requests().get();
        let spacings = limits.quotas().iter().map(spacing);
        Some(Self {
            token: folder.join(format!("token-{name}")),
            stamp: folder.join(format!("start-{name}")),
            spacing: spacings.max().unwrap_or_default(),
        })
    }

    pub(crate) fn tokens(&self) -> FileStore {
        FileStore::new(&self.token)
    }

    /// Takes the next turn to send one request, and returns how long to wait for it.
    ///
    /// Processes that start together, as from a crontab, thus stay within the service's rate.
    pub(crate) async fn turn(&self) -> Duration {
        let (path, spacing) = (self.stamp.clone(), self.spacing);
        let turn = tokio::task::spawn_blocking(move || turn(&path, spacing)).await;
        match turn.map_err(io::Error::other).flatten() {
            Ok(wait) => wait,
            Err(error) => {
                warn(&format!("{}: {error}", self.stamp.display()));
                Duration::ZERO
            }
        }
    }

    /// Describes the file of the turns, for the error of a job that got no turn. Such a job sends
    /// nothing, because other processes may be about to send.
    pub(crate) fn held(&self) -> String {
        format!("{}, which another process holds", self.stamp.display())
    }
}

/// Takes the next turn after that of the last start, which is the modification time of the file.
fn turn(path: &Path, spacing: Duration) -> io::Result<Duration> {
    let mut options = fs::OpenOptions::new();
    let mut file = options.append(true).create(true).open(path)?;
    // The system releases the lock if the process ends meanwhile.
    file.lock()?;
    let about = file.metadata()?;
    let is_new = about.len() == 0;
    if is_new {
        file.write_all(b"\n")?;
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "the only clock that processes share"
    )]
    let now = SystemTime::now();
    let next = about.modified()?.checked_add(spacing);
    // A turn beyond the end of the longest queue was taken before the clock was set back.
    let farthest = now + FARTHEST.max(spacing * QUEUE);
    let next = next.filter(|next| !is_new && (now..=farthest).contains(next));
    let next = next.unwrap_or(now);
    file.set_modified(next)?;
    Ok(next.duration_since(now).unwrap_or_default())
}

/// Returns the default folder of this user.
pub(crate) fn usual() -> Option<String> {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let base = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")? + "/.local/state"))?;
    Some(base + "/tds")
}

/// Creates a folder for its owner alone.
fn private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Most processes that can wait for their turns.
const QUEUE: u32 = 2_400;

/// How long that queue takes, with turns of 25 ms.
const FARTHEST: Duration = Duration::from_secs(60);
