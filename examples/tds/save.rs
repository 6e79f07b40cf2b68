//! Files that are there whole or not at all: written beside, synced, and renamed into place.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use tokio::{fs, io::AsyncWriteExt};

/// A file that is being written, under a name of its own until it is whole.
#[derive(Debug)]
pub(crate) struct Part {
    file: fs::File,
    beside: PathBuf,
    path: PathBuf,
}

// === impl Part ===

impl Part {
    /// Begins the file `path` afresh.
    pub(crate) async fn create(path: &Path) -> io::Result<Self> {
        let beside = beside(path, PART);
        Ok(Self {
            file: fs::File::create(&beside).await?,
            beside,
            path: path.to_owned(),
        })
    }

    pub(crate) async fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.file.write_all(data).await
    }

    /// Makes it the file. After a loss of power the old one is there, or the new one, and nothing between.
    pub(crate) async fn finish(mut self) -> io::Result<()> {
        self.file.flush().await?;
        self.file.sync_all().await?;
        fs::rename(&self.beside, &self.path).await
    }

    /// Leaves nothing behind.
    pub(crate) async fn discard(self) {
        drop(self.file);
        drop(fs::remove_file(&self.beside).await);
    }
}

/// Writes all of `data` to `path`.
pub(crate) async fn whole(path: &Path, data: &[u8]) -> io::Result<()> {
    let mut part = Part::create(path).await?;
    match part.write(data).await {
        Ok(()) => part.finish().await,
        Err(error) => {
            part.discard().await;
            Err(error)
        }
    }
}

/// `path` with something after its name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// What is not whole has a name that ends so.
pub(crate) const PART: &str = ".part";
