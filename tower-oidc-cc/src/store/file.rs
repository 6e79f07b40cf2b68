//! Store in one file, for programs that start often on one machine.

use std::{
    error::Error,
    fs,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{task::spawn_blocking, time::sleep};

use super::{StoredToken, TokenStore};

/// Keeps one token in one file, so that ten starts of a program make one token request.
///
/// Give each client, endpoint and scope a file of its own. The folder must not be writable by other users, because they
/// could hold the lock. Only the file's owner can access it (mode 0600); a new one is written beside the old one and
/// renamed. The process that requests a token locks a second file, `NAME.lock`; the lock ends with the process. If the
/// file or its folder is not usable, the process logs a warning and requests a token.
///
/// If a token from the file is due for renewal, it is renewed after half a minute, or sooner if its life is short. A
/// program that ends before that uses the token until it expires.
///
/// # Examples
///
/// ```
/// use tower_oidc_cc::{Credentials, TokenEndpoint, TokenSource, FileStore};
///
/// # fn with(endpoint: TokenEndpoint, credentials: Credentials) {
/// let builder = TokenSource::builder(endpoint, credentials).store(FileStore::new("token.json"));
/// # let _ = builder;
/// # }
/// ```
#[derive(Debug)]
pub struct FileStore {
    path: Arc<PathBuf>,
    /// Lock file, while it is the turn of this process. The mutex guards only this field.
    turn: Mutex<Option<fs::File>>,
}

// === impl FileStore ===

impl FileStore {
    /// Creates a store in this file, whose folder must exist.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: Arc::new(path.into()),
            turn: Mutex::default(),
        }
    }

    /// Runs work on the disk on a blocking thread.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Box<dyn Error + Send + Sync>> {
        let path = Arc::clone(&self.path);
        let done = spawn_blocking(move || work(&path)).await;
        let done = done.unwrap_or_else(|error| Err(error.into()));
        done.map_err(|error| format!("{}: {error}", self.path.display()).into())
    }

    fn turn(&self) -> MutexGuard<'_, Option<fs::File>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TokenStore for FileStore {
    async fn load(
        &self,
        _: &str,
        is_enough: &(dyn Fn(&StoredToken) -> bool + Sync),
    ) -> Result<Option<StoredToken>, Box<dyn Error + Send + Sync>> {
        let mut turn = self.turn().take();
        loop {
            let read = self.on_disk(read).await?;
            let stored = read.map(StoredToken::from_bytes);
            if stored.as_ref().is_some_and(is_enough) {
                return Ok(stored);
            }
            if turn.is_some() {
                *self.turn() = turn;
                return Ok(stored);
            }
            turn = self.on_disk(lock).await?;
            if turn.is_none() {
                sleep(LOOK_EVERY).await;
            }
        }
    }

    async fn save(&self, _: &str, entry: &StoredToken) -> Result<(), Box<dyn Error + Send + Sync>> {
        let (entry, turn) = (entry.clone(), self.turn().take());
        self.on_disk(move |path| {
            let written = write(path, entry.as_bytes());
            // Closes the lock file after the new one is in its place.
            drop(turn);
            written
        })
        .await
    }
}

/// Reads the file; `None` if there is none.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    check_mode(&file.metadata()?)?;
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Refuses a file that other users can read or write.
#[cfg(unix)]
fn check_mode(metadata: &fs::Metadata) -> io::Result<()> {
    if std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o077 == 0 {
        return Ok(());
    }
    let reason = "its group or other users can access it";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
}

#[cfg(not(unix))]
fn check_mode(_: &fs::Metadata) -> io::Result<()> {
    Ok(())
}

/// Writes a new file beside the old one, and renames it. Its name is fixed, so that what a killed process has left is
/// removed. Without turns, two that write at once may leave a half of one, which is read as none.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = beside(path, ".new");
    drop(fs::remove_file(&beside));
    let written = private(&beside, true).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    });
    written.inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// Takes the lock; `None` if another process holds it.
fn lock(path: &Path) -> io::Result<Option<fs::File>> {
    let file = private(&beside(path, ".lock"), false)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.to_path_buf().into_os_string();
    name.push(suffix);
    name.into()
}

/// Opens a file for its owner alone.
fn private(path: &Path, new: bool) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).create_new(new);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Time between two looks while it is the turn of another process.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Largest file that is read: a token of 64 KiB in its entry.
const LARGEST: u64 = 128 * 1024;
