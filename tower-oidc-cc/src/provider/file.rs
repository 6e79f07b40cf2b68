//! A secret or a statement from a file. One that hangs keeps a thread, and no program from ending.

use std::{
    fs, io,
    io::Read,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use tokio::{sync, task::spawn_blocking};
use zeroize::Zeroizing;

use super::{Provided, Providing};
use crate::Credentials;

/// A path, and what was last read there.
#[derive(Debug)]
pub(super) struct File {
    client_id: String,
    path: PathBuf,
    content: Content,
    /// The bits of a mode that are refused.
    refused: u32,
    good: Good,
    /// Held by the one read that may be under way: one that hangs keeps a thread, and no second
    /// one shall.
    reading: Arc<sync::Mutex<()>>,
}

/// What the file holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    Secret,
    Assertion,
}

/// Guards the last good credentials; nothing else happens under it.
type Good = Arc<Mutex<Option<Arc<Credentials>>>>;

// === impl File ===

impl File {
    pub(super) fn new(client_id: String, path: PathBuf, content: Content) -> Self {
        Self {
            client_id,
            path,
            content,
            refused: 0o077,
            good: Arc::default(),
            reading: Arc::default(),
        }
    }

    pub(super) fn readable_by_group(&self) -> Self {
        Self {
            refused: 0o037,
            ..Self::new(self.client_id.clone(), self.path.clone(), self.content)
        }
    }

    /// Reads the file anew: it is small, and token requests are rare. Watching for changes would
    /// take a descriptor, and miss what a network file system does.
    pub(super) fn provide(&self) -> Providing {
        let (client_id, path) = (self.client_id.clone(), self.path.clone());
        let (content, refused) = (self.content, self.refused);
        let (good, reading) = (Arc::clone(&self.good), Arc::clone(&self.reading));
        Box::pin(async move {
            let turn = Arc::clone(&reading).try_lock_owned().ok();
            let turn = match (turn, last(&good)) {
                (Some(turn), _) => turn,
                (None, Some(good)) => return Ok(good),
                (None, None) => reading.lock_owned().await,
            };
            // All of it, so that a read that nobody waits for any more is not in vain.
            detached(move || {
                let read = read(&path, refused).and_then(|text| {
                    let text = text.as_str();
                    Ok(Arc::new(match content {
                        Content::Secret => Credentials::new(client_id, text)?,
                        Content::Assertion => Credentials::assertion(client_id, text)?,
                    }))
                });
                let kept = keep(read, &good);
                drop(turn);
                kept
            })
            .await
            .unwrap_or_else(|error| Err(error.into()))
        })
    }

    pub(super) fn last(&self) -> Option<Arc<Credentials>> {
        last(&self.good)
    }
}

/// Does what may hang on a thread of its own: a runtime waits at its end for those of
/// `spawn_blocking`, and a program for no thread.
pub(crate) async fn detached<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, result) = sync::oneshot::channel();
    let (over, quick) = std::sync::mpsc::channel::<()>();
    let run = move || {
        // Who has stopped waiting needs no answer.
        drop(done.send(work()));
        drop(over);
    };
    let thread = thread::Builder::new().name("tower-oidc-cc".into());
    drop(thread.spawn(run)?);
    // For its first moment it counts as the runtime's own, so that a paused clock stands still.
    drop(spawn_blocking(move || quick.recv_timeout(MOMENT)).await);
    let died = |_| io::Error::other("the thread that reads it panicked");
    result.await.map_err(died)
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

fn read(
    path: &Path,
    refused: u32,
) -> Result<Zeroizing<String>, Box<dyn std::error::Error + Send + Sync>> {
    let named = |error: io::Error| format!("{}: {error}", path.display());
    let mut file = fs::File::open(path).map_err(named)?;
    // Of the open file, and not of the path: that may lead elsewhere by now.
    check_mode(&file.metadata().map_err(named)?, refused).map_err(named)?;
    // With room for all of it from the start, no copy of the secret is left behind.
    let mut text = Zeroizing::new(String::with_capacity(LARGEST));
    let limit = u64::try_from(LARGEST).unwrap_or(u64::MAX);
    let read = Read::by_ref(&mut file)
        .take(limit)
        .read_to_string(&mut text);
    read.map_err(named)?;
    Ok(text)
}

#[cfg(unix)]
fn check_mode(metadata: &fs::Metadata, refused: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    if metadata.permissions().mode() & refused == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "others than its owner may read or write the secret's file: chmod 600 it, or let its group \
         read it by `readable_by_group`",
    ))
}

#[cfg(not(unix))]
fn check_mode(_: &fs::Metadata, _: u32) -> io::Result<()> {
    Ok(())
}

/// A read takes microseconds.
const MOMENT: Duration = Duration::from_millis(100);
/// A secret of a Keycloak has 32 characters; a statement of Kubernetes 1,000 to 2,000.
const LARGEST: usize = 16 * 1024;
