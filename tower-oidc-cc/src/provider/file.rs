//! A secret or a statement from a file. One that hangs keeps a thread, and no program from ending.

use std::{
    fs, io,
    io::Read,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{sync, task::spawn_blocking};
use zeroize::Zeroizing;

use super::{Provided, Providing};
use crate::{
    Credentials,
    clock::{Clock, Timestamp},
};

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
    /// Guards the time at which the last one began; nothing else happens under it.
    started: Arc<Mutex<Option<Timestamp>>>,
    threads: Threads,
}

/// What the file holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    Secret,
    Assertion,
}

/// Threads that do what may hang, and how many of them are alive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Threads(Arc<AtomicUsize>);

/// A thread that is alive.
struct Alive(Arc<AtomicUsize>);

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
            started: Arc::default(),
            threads: Threads::default(),
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
        let (started, threads) = (Arc::clone(&self.started), self.threads.clone());
        Box::pin(async move {
            let begun = || started.lock().unwrap_or_else(PoisonError::into_inner);
            // A read that is written off: there may be another file by now.
            let now = Clock::default().now();
            let stuck = || begun().is_some_and(|at| at.age_at(now) >= STUCK);
            let (turn, last) = (Arc::clone(&reading).try_lock_owned().ok(), last(&good));
            let (turn, last) = match (turn, last) {
                (Some(turn), _) => (Some(turn), None),
                (None, last) if stuck() => (None, last),
                (None, Some(last)) => return Ok(last),
                (None, None) => (Some(reading.lock_owned().await), None),
            };
            *begun() = Some(now);
            // All of it, so that a read that nobody waits for any more is not in vain.
            let read = move || {
                let read = read(&path, refused).and_then(|text| {
                    let text = text.as_str();
                    Ok(Arc::new(match content {
                        Content::Secret => Credentials::new(client_id, text)?,
                        Content::Assertion => Credentials::assertion(client_id, text)?,
                    }))
                });
                keep(read, &good)
            };
            if let Some(last) = last {
                // What it brings is for the next time.
                drop(threads.start(turn, read));
                return Ok(last);
            }
            let read = threads.detached(turn, read).await;
            read.unwrap_or_else(|error| Err(error.into()))
        })
    }

    pub(super) fn last(&self) -> Option<Arc<Credentials>> {
        last(&self.good)
    }
}

// === impl Threads ===

impl Threads {
    /// Does what may hang on a thread of its own: a runtime waits at its end for those of
    /// `spawn_blocking`, and a program for no thread. If several hang there are no more.
    ///
    /// `held` goes when the work is done, and the thread does not count any more by then: who
    /// waits for it begins one of his own at once.
    pub(crate) async fn detached<T: Send + 'static>(
        &self,
        held: impl Send + 'static,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let died = |_| io::Error::other("the thread that reads it panicked");
        self.start(held, work)?.await.map_err(died)
    }

    fn start<T: Send + 'static>(
        &self,
        held: impl Send + 'static,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<sync::oneshot::Receiver<T>> {
        let alive = Alive(Arc::clone(&self.0));
        // Relaxed: it is a bound, and orders nothing.
        if self.0.fetch_add(1, Ordering::Relaxed) >= MOST {
            return Err(io::Error::other("it hangs, over and over"));
        }
        let (done, result) = sync::oneshot::channel();
        let (over, quick) = std::sync::mpsc::channel::<()>();
        let run = move || {
            let worked = work();
            drop(alive);
            drop(held);
            // Who has stopped waiting needs no answer.
            drop(done.send(worked));
            drop(over);
        };
        let thread = thread::Builder::new().name("tower-oidc-cc".into());
        drop(thread.spawn(run)?);
        // For its first moment it counts as the runtime's own, so that a paused clock stands still.
        drop(spawn_blocking(move || quick.recv_timeout(MOMENT)));
        Ok(result)
    }
}

// === impl Alive ===

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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

/// Of threads that hang at the same time.
const MOST: usize = 3;
/// A read that lasts so long is not waited for any more.
const STUCK: Duration = Duration::from_secs(60);
/// A read takes microseconds.
const MOMENT: Duration = Duration::from_millis(100);
/// A secret of a Keycloak has 32 characters; a statement of Kubernetes 1,000 to 2,000.
const LARGEST: usize = 16 * 1024;

#[cfg(test)]
mod tests;
