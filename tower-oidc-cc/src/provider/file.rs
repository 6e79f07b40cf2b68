//! A secret from a file.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::{sync::Mutex, task::spawn_blocking};
use zeroize::Zeroizing;

use super::Providing;
use crate::Credentials;

/// A path, and what was last read there.
#[derive(Debug)]
pub(super) struct File {
    client_id: String,
    path: PathBuf,
    /// The bits of a mode that are refused.
    refused: u32,
    /// The last good credentials. The one read that is under way holds the lock: one that hangs keeps
    /// a thread, and a second one shall not.
    good: Arc<Mutex<Option<Arc<Credentials>>>>,
}

// === impl File ===

impl File {
    pub(super) fn new(client_id: String, path: PathBuf) -> Self {
        Self {
            client_id,
            path,
            refused: 0o077,
            good: Arc::default(),
        }
    }

    pub(super) fn readable_by_group(&self) -> Self {
        Self {
            refused: 0o037,
            ..Self::new(self.client_id.clone(), self.path.clone())
        }
    }

    /// Reads the file anew: it is small, and token requests are rare. Watching for changes would
    /// take a descriptor, and miss what a network file system does.
    pub(super) fn provide(&self) -> Providing {
        let (client_id, path, refused) = (self.client_id.clone(), self.path.clone(), self.refused);
        let good = Arc::clone(&self.good);
        Box::pin(async move {
            let mut good = good.lock_owned().await;
            let read = spawn_blocking(move || {
                let read = read(&path, refused)
                    .and_then(|text| Ok(Arc::new(Credentials::new(client_id, text.as_str())?)));
                match (read, &*good) {
                    (Ok(credentials), _) => *good = Some(credentials),
                    (Err(error), Some(_)) => {
                        tracing::warn!(
                            error,
                            "the secret's file is not usable: the last one stays"
                        );
                    }
                    (Err(error), None) => return Err(error),
                }
                good.clone().ok_or_else(|| "there is none".into())
            });
            read.await.unwrap_or_else(|error| Err(error.into()))
        })
    }
}

fn read(
    path: &Path,
    refused: u32,
) -> Result<Zeroizing<String>, Box<dyn std::error::Error + Send + Sync>> {
    let named = |error: io::Error| format!("{}: {error}", path.display());
    // Before it is opened, since that waits at a pipe.
    if !fs::metadata(path).map_err(named)?.is_file() {
        return Err(named(io::Error::other("it is no regular file")).into());
    }
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

/// A secret of a Keycloak has 32 characters.
const LARGEST: usize = 16 * 1024;
