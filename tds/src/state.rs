//! State that the processes with one key share on one machine: their token, and their turns to
//! send.

use std::{
    fs,
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
    /// Time between two starts that keeps the short limits.
    spacing: Duration,
    /// Limits whose starts are counted, because turns would be too far apart.
    counted: Vec<Quota>,
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
        let spacings = limits.quotas().iter().map(spacing).map(|it| it.min(SECOND));
        let is_long = |quota: &&Quota| spacing(quota) > SECOND;
        Some(Self {
            token: folder.join(format!("token-{name}")),
            stamp: folder.join(format!("start-{name}")),
            spacing: spacings.max().unwrap_or_default(),
            counted: limits.quotas().iter().filter(is_long).copied().collect(),
        })
    }

    pub(crate) fn tokens(&self) -> FileStore {
        FileStore::new(&self.token)
    }

    /// Takes the next turn to send one request, and returns how long to wait for it. A turn that is
    /// further away than `longest` is not taken.
    ///
    /// Processes that start together, as from a crontab, thus stay within the service's rate, and
    /// those of a day within a daily quota.
    pub(crate) async fn turn(&self, longest: Duration) -> Duration {
        let (path, spacing) = (self.stamp.clone(), self.spacing);
        let counted = self.counted.clone();
        let turn = move || turn(&path, spacing, &counted, longest);
        let turn = tokio::task::spawn_blocking(turn).await;
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

/// Takes the next turn after that of the last start, which is the modification time of the file. It
/// has a line for each start that is still counted, in milliseconds since 1970.
fn turn(
    path: &Path,
    spacing: Duration,
    counted: &[Quota],
    longest: Duration,
) -> io::Result<Duration> {
    let mut options = fs::OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).open(path)?;
    // The system releases the lock if the process ends meanwhile.
    file.lock()?;
    let about = file.metadata()?;
    let text = io::read_to_string(&file)?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the only clock that processes share"
    )]
    let now = SystemTime::now();
    let next = about.modified()?.checked_add(spacing);
    // A turn beyond the end of the longest queue was taken before the clock was set back.
    let farthest = now + FARTHEST.max(spacing * QUEUE);
    let next = next.filter(|next| !text.is_empty() && (now..=farthest).contains(next));
    let mut next = next.unwrap_or(now);
    let starts = text.lines().filter_map(|line| line.parse().ok());
    let starts = starts.map(|millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
    // Those of the future are of a clock that was set back.
    let window = counted.iter().map(Quota::per).max().unwrap_or_default();
    let mut starts: Vec<_> = starts.filter(|start| *start <= farthest + window).collect();
    starts.sort_unstable();
    for quota in counted {
        let requests = usize::try_from(quota.requests().get()).unwrap_or(usize::MAX);
        let oldest = starts
            .len()
            .checked_sub(requests)
            .and_then(|at| starts.get(at));
        // A request may arrive later than it was sent.
        let free = oldest.map_or(now, |oldest| *oldest + quota.per() + SECOND);
        next = next.max(free);
    }
    let wait = next.duration_since(now).unwrap_or_default();
    if wait > longest {
        return Ok(wait);
    }
    starts.push(next);
    starts.retain(|start| !window.is_zero() && *start + window > now);
    let millis = |start: &SystemTime| {
        start
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
    };
    let lines = starts
        .iter()
        .map(|start| format!("{}\n", millis(start).as_millis()));
    file.set_len(0)?;
    file.write_all(("\n".to_owned() + &lines.collect::<String>()).as_bytes())?;
    file.set_modified(next)?;
    Ok(wait)
}

/// Creates a folder for its owner alone.
fn private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Longest time between two turns.
const SECOND: Duration = Duration::from_secs(1);

/// Most processes that can wait for their turns.
const QUEUE: u32 = 2_400;

/// How long that queue takes, with turns of 25 ms.
const FARTHEST: Duration = Duration::from_secs(60);
