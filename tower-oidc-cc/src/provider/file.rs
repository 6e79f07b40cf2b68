//! A secret from a file.

use std::{
    fs, io,
    io::Read,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync, task::spawn_blocking};
use zeroize::Zeroizing;

use super::source::{Provided, Providing, Source};
use crate::Credentials;

/// A path, and what was last read there.
#[derive(Debug)]
pub(super) struct File {
    client_id: String,
    path: PathBuf,
    good: Good,
    /// Held by the one read that may be under way: one that hangs keeps a thread, and no second
    /// one shall.
    reading: Arc<sync::Mutex<()>>,
}

/// Guards the last good credentials; nothing else happens under it.
type Good = Arc<Mutex<Option<Arc<Credentials>>>>;

// === impl File ===

impl File {
    pub(super) fn new(client_id: String, path: PathBuf) -> Self {
        Self {
            client_id,
            path,
            good: Arc::default(),
            reading: Arc::default(),
        }
    }
}

impl Source for File {
    /// Reads the file anew: it is small, and token requests are rare. Watching for changes would
    /// take a descriptor, and miss what a network file system does.
    fn provide(&self) -> Providing {
        let (client_id, path) = (self.client_id.clone(), self.path.clone());
        let (good, reading) = (Arc::clone(&self.good), Arc::clone(&self.reading));
        Box::pin(async move {
            let turn = Arc::clone(&reading).try_lock_owned().ok();
            let turn = match (turn, last(&good)) {
                (Some(turn), _) => turn,
                (None, Some(good)) => return Ok(good),
                (None, None) => reading.lock_owned().await,
            };
            // All of it, so that a read that nobody waits for any more is not in vain.
            let read = spawn_blocking(move || {
                let kept = keep(read(client_id, &path), &good);
                drop(turn);
                kept
            });
            read.await.unwrap_or_else(|error| Err(error.into()))
        })
    }

    fn last(&self) -> Option<Arc<Credentials>> {
        last(&self.good)
    }

    fn watch(&self) -> Option<Duration> {
        Some(WATCH)
    }
}

fn last(good: &Good) -> Option<Arc<Credentials>> {
    good.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Keeps what was read as the last good credentials, or falls back to those.
fn keep(read: Provided, good: &Good) -> Provided {
    let mut good = good.lock().unwrap_or_else(PoisonError::into_inner);
    match (read, &*good) {
        (Ok(credentials), _) => {
            *good = Some(Arc::clone(&credentials));
            Ok(credentials)
        }
        (Err(error), Some(good)) => {
            tracing::warn!(error, "the secret's file is not usable: the last one stays");
            Ok(Arc::clone(good))
        }
        (Err(error), None) => Err(error),
    }
}

fn read(client_id: String, path: &Path) -> Provided {
    let mut file = fs::File::open(path)?;
    // Of the open file, and not of the path: that may lead elsewhere by now.
    check_mode(&file.metadata()?)?;
    // With room for all of it from the start, no copy of the secret is left behind.
    let mut secret = Zeroizing::new(String::with_capacity(LARGEST));
    let limit = u64::try_from(LARGEST).unwrap_or(u64::MAX);
    Read::by_ref(&mut file)
        .take(limit)
        .read_to_string(&mut secret)?;
    Ok(Arc::new(Credentials::new(client_id, secret.as_str())?))
}

#[cfg(unix)]
fn check_mode(metadata: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    if metadata.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "others than its owner may read or write the secret's file: chmod 600 it",
    ))
}

#[cfg(not(unix))]
fn check_mode(_: &fs::Metadata) -> io::Result<()> {
    Ok(())
}

/// A new secret is tried within a second of its being there.
const WATCH: Duration = Duration::from_millis(500);
/// A secret of a Keycloak has 32 characters.
const LARGEST: usize = 4 * 1024;
