//! State that the processes with one key share on one machine: their token, and their turns to
//! send.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read as _, Seek as _, Write as _},
    iter,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tower_tds::{Limits, Quota, layers::token::FileStore};

use crate::{lock::lock, output::warn};

/// Files of one key: its token, and the turn of its last request.
#[derive(Debug)]
pub(crate) struct State {
    token: PathBuf,
    stamp: PathBuf,
    /// Time between two turns that keeps the short limits.
    spacing: Duration,
    /// Limits whose requests are counted: they outlast a job, or turns would be too far apart.
    counted: Vec<Quota>,
    /// How many permits of this process are in the count.
    recorded: Mutex<u64>,
}

// === impl State ===

impl State {
    /// Opens or creates the folder. If that fails, this prints a warning and returns `None`:
    /// nothing is shared.
    ///
    /// A limit of more than a minute counts the requests of all jobs. For a shorter one, a job of one request takes its
    /// turn, and one of many has waited at its start.
    pub(crate) fn open(
        folder: Option<&str>,
        key: &[&str],
        limits: &Limits,
        is_for_one: bool,
    ) -> Option<Self> {
        let Some(folder) = folder.map(Path::new) else {
            warn(&format!(
                "no folder for the state (set TDS_STATE_DIR or HOME): {ALONE}"
            ));
            return None;
        };
        if let Err(error) = private(folder) {
            warn(&format!("{}: {error}; {ALONE}", folder.display()));
            return None;
        }
        // Each key has its own file, named by a hash because a key may contain characters that a
        // file name cannot.
        let mut hash = DefaultHasher::new();
        key.hash(&mut hash);
        let name = format!("{:016x}", hash.finish());
        let quotas = || limits.quotas().iter();
        // Turns use four fifths of the rate, which leaves the rest for retries.
        let spacing = |quota: &Quota| quota.per() * 5 / 4 / quota.requests().get();
        let spacings = quotas().map(spacing).map(|it| it.min(SECOND));
        let spacings = spacings.filter(|_| is_for_one);
        let is_counted =
            |quota: &&Quota| quota.per() > MINUTE || (is_for_one && spacing(quota) > SECOND);
        Some(Self {
            token: folder.join(format!("token-{name}")),
            stamp: folder.join(format!("start-{name}")),
            spacing: spacings.max().unwrap_or_default(),
            counted: quotas().filter(is_counted).copied().collect(),
            recorded: Mutex::default(),
        })
    }

    pub(crate) fn tokens(&self) -> FileStore {
        FileStore::new(&self.token)
    }

    /// Takes the next turn to send one request, and returns how long to wait for it. A turn that is
    /// further away than `longest` is not taken.
    ///
    /// Processes that start together, as from a crontab, thus stay within the service's rate, and
    /// those of a day within a daily quota. Of that, the permits for the token and for the client's
    /// own retries count too: `granted` is the number of all permits of this process so far.
    pub(crate) async fn turn(self: &Arc<Self>, granted: u64, longest: Duration) -> Duration {
        if self.spacing.is_zero() && self.counted.is_empty() {
            return Duration::ZERO;
        }
        let state = Arc::clone(self);
        let turn = tokio::task::spawn_blocking(move || state.take(granted, longest)).await;
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
        format!("{}, which another process may hold", self.stamp.display())
    }

    /// Takes the next turn after the last one. The file has a line for each turn that still matters, in
    /// milliseconds since 1970.
    fn take(&self, granted: u64, longest: Duration) -> io::Result<Duration> {
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&self.stamp)?;
        // The system releases the lock if the process ends meanwhile.
        file.lock()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        #[expect(
            clippy::disallowed_methods,
            reason = "the only clock that processes share"
        )]
        let now = SystemTime::now();
        let counted = self.counted.iter().map(Quota::per).max();
        let window = counted.unwrap_or_default().max(self.spacing);
        // A turn beyond the end of the longest queue was taken before the clock was set back.
        let farthest = now + FARTHEST.max(self.spacing * QUEUE);
        let all = text.lines().filter_map(|line| line.parse().ok());
        let all = all.map(|millis| UNIX_EPOCH + Duration::from_millis(millis));
        let mut all: Vec<_> = all.filter(|it| *it <= farthest + window).collect();
        let next = all.iter().max().map(|last| *last + self.spacing);
        let next = next.filter(|next| (now..=farthest).contains(next));
        let mut next = next.unwrap_or(now);
        let mut recorded = lock(&self.recorded);
        let more = usize::try_from(granted.saturating_sub(*recorded)).unwrap_or_default();
        all.extend(iter::repeat_n(now, more));
        all.sort_unstable();
        for quota in &self.counted {
            let requests = usize::try_from(quota.requests().get()).unwrap_or(usize::MAX);
            let oldest = all.len().checked_sub(requests).and_then(|at| all.get(at));
            // A request may arrive later than it was sent.
            let free = oldest.map_or(now, |oldest| *oldest + quota.per() + SECOND);
            next = next.max(free);
        }
        let wait = next.duration_since(now).unwrap_or_default();
        if wait > longest {
            return Ok(wait);
        }
        *recorded += u64::try_from(more).unwrap_or_default() + 1;
        all.push(next);
        all.retain(|it| *it + window > now);
        let millis = |it: &SystemTime| it.duration_since(UNIX_EPOCH).unwrap_or_default();
        let lines = all.iter().map(|it| format!("{}\n", millis(it).as_millis()));
        // Over the old ones, so that a full disk or a killed process loses none.
        file.rewind()?;
        file.write_all(lines.collect::<String>().as_bytes())?;
        let end = file.stream_position()?;
        file.set_len(end)?;
        Ok(wait)
    }
}

/// Creates a folder for its owner alone.
fn private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// End of a warning: the price of a folder that cannot be used.
const ALONE: &str = "each run requests a new token, and counts its requests alone";

/// Longest quota for which a job of many requests waits at its start.
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Longest time between two turns.
const SECOND: Duration = Duration::from_secs(1);

/// Most processes that can wait for their turns.
const QUEUE: u32 = 2_400;

/// How long that queue takes, with turns of 25 ms.
const FARTHEST: Duration = Duration::from_secs(60);
