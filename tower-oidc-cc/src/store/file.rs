//! Store in one file, for programs that start often on one machine.

use std::{
    error::Error,
    fs,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::task::spawn_blocking;

use super::{SAID, StoredToken, TokenStore};
use crate::error::ConfigError;

/// Keeps one token in one file, so that ten starts of a program make one token request.
///
/// Give each client, endpoint and scope a file of its own. The folder must not be writable by other users, because they
/// could hold the lock. Only the file's owner can access it (mode 0600); a new one is written beside the old one and
/// renamed. The lease is a lock on a second file, `NAME.lock`, which ends with the process that holds it. If the endpoint
/// gives no token, `NAME.said` holds what it said. If the file or its folder is not usable, the process logs a warning and requests a token.
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
    paths: Arc<Paths>,
    /// Lock file, while this process holds the lease. The mutex guards only this field.
    leased: Mutex<Option<fs::File>>,
}

#[derive(Debug)]
struct Paths {
    token: PathBuf,
    /// What the endpoint said when it gave no token.
    said: PathBuf,
    lock: PathBuf,
}

// === impl FileStore ===

impl FileStore {
    /// Creates a store in this file, whose folder must exist.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let token = path.into();
        let beside = |suffix: &str| {
            let mut path = token.clone().into_os_string();
            path.push(suffix);
            path.into()
        };
        Self {
            paths: Arc::new(Paths {
                said: beside(".said"),
                lock: beside(".lock"),
                token,
            }),
            leased: Mutex::default(),
        }
    }

    /// Runs work on the disk on a blocking thread.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Paths) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let paths = Arc::clone(&self.paths);
        let done = spawn_blocking(move || work(&paths)).await;
        let done = done.unwrap_or_else(|error| Err(error.into()));
        done.map_err(|error| self.named(&error))
    }

    fn named(&self, error: &dyn Error) -> io::Error {
        io::Error::other(format!("{}: {error}", self.paths.token.display()))
    }

    fn leased(&self) -> std::sync::MutexGuard<'_, Option<fs::File>> {
        self.leased.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Paths ===

impl Paths {
    fn of(&self, is_said: bool) -> &Path {
        if is_said { &self.said } else { &self.token }
    }
}

impl TokenStore for FileStore {
    async fn load(&self, key: &str) -> Result<Option<StoredToken>, Box<dyn Error + Send + Sync>> {
        let is_said = key.starts_with(SAID);
        let read = self.on_disk(move |paths| read(paths.of(is_said))).await?;
        match read.map(StoredToken::from_bytes) {
            Some(token) if !token.is_for(key) => Err(self.named(&OTHER).into()),
            token => Ok(token),
        }
    }

    async fn save(
        &self,
        key: &str,
        token: &StoredToken,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        // Writing closes the lock file, which ends the lease.
        let is_said = key.starts_with(SAID);
        let (token, lock) = (token.clone(), self.leased().take());
        let write = move |paths: &Paths| {
            // The holder of the lease uses a fixed name, so that it removes what a killed process has left.
            let beside = match &lock {
                Some(_) => String::from(".new"),
                None => format!(".{:x}", fastrand::u64(..)),
            };
            let written = write(paths.of(is_said), &beside, token.as_bytes());
            drop(lock);
            written
        };
        Ok(self.on_disk(write).await?)
    }

    async fn lease(&self, _: &str, _: Duration) -> Result<bool, Box<dyn Error + Send + Sync>> {
        if self.leased().is_some() {
            return Ok(true);
        }
        let lock = self.on_disk(|paths| lock(&paths.lock)).await?;
        let is_free = lock.is_some();
        *self.leased() = lock;
        Ok(is_free)
    }

    fn release(&self, _: &str) -> bool {
        drop(self.leased().take());
        true
    }
}

/// Reads the file; `None` if there is none.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    check_owner(&file.metadata()?)?;
    let mut bytes = Vec::with_capacity(LARGEST);
    let limit = u64::try_from(LARGEST).unwrap_or(u64::MAX);
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Refuses a file that belongs to another user, or that other users can read or write.
#[cfg(unix)]
fn check_owner(metadata: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;

    let ours = metadata.uid() == rustix::process::geteuid().as_raw();
    if ours && metadata.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "it belongs to another user, or its group or other users can access it",
    ))
}

#[cfg(not(unix))]
fn check_owner(_: &fs::Metadata) -> io::Result<()> {
    Ok(())
}

/// Writes a new file beside the old one, and renames it.
fn write(path: &Path, suffix: &str, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.to_path_buf().into_os_string();
    beside.push(suffix);
    drop(fs::remove_file(&beside));
    let written = private(&beside.clone().into(), true).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    });
    written.inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// Takes the lock; `None` if another process holds it.
fn lock(path: &PathBuf) -> io::Result<Option<fs::File>> {
    let file = private(path, false)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Opens a file for its owner alone.
fn private(path: &PathBuf, new: bool) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).create_new(new);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

const OTHER: ConfigError =
    ConfigError::new("it holds no token for this client, endpoint and scope");
/// Largest file that is read: a token of 64 KiB in its entry.
const LARGEST: usize = 128 * 1024;
