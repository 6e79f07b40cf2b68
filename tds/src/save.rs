//! Atomic files: each is written under another name, synced, and renamed.

use std::{
    io::{self, Read as _, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use sha2::{Digest as _, Sha256};
use tokio::{
    fs,
    io::{AsyncSeekExt, AsyncWriteExt},
    task::spawn_blocking,
    time::sleep,
};

use crate::exit::Failure;

/// File in progress, under another name until it is whole.
///
/// The file is locked, because two writers would mix their bytes. Dropping the part removes the
/// file, unless it is [kept](Self::keep) for a later run.
#[derive(Debug)]
pub(crate) struct Part {
    file: fs::File,
    part: PathBuf,
    whole: PathBuf,
    length: u64,
    /// Hash of the bytes so far. Those of an earlier run are included once they are
    /// [resumed](Self::resume).
    sum: Sha256,
    is_kept: bool,
}

// === impl Part ===

impl Part {
    /// Opens the part of `path`. Bytes that an earlier run left stay until they are
    /// [cleared](Self::clear).
    ///
    /// The file is created and locked in one step that cannot be cancelled, so a job that ends
    /// meanwhile leaves no empty part.
    pub(crate) async fn open(path: &Path) -> io::Result<Self> {
        let whole = path.to_owned();
        spawn_blocking(|| {
            let mut part = whole.as_os_str().to_owned();
            part.push(PART);
            let part = PathBuf::from(part);
            let mut file = locked(&part)?;
            let length = file.seek(SeekFrom::End(0))?;
            let mut file = fs::File::from_std(file);
            file.set_max_buf_size(BUFFER);
            Ok(Self {
                file,
                part,
                whole,
                length,
                sum: Sha256::new(),
                is_kept: length > 0,
            })
        })
        .await?
    }

    pub(crate) const fn length(&self) -> u64 {
        self.length
    }

    /// Keeps the bytes for a later run.
    pub(crate) const fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Removes all bytes.
    pub(crate) async fn clear(&mut self) -> io::Result<()> {
        self.is_kept = false;
        self.sum = Sha256::new();
        // Devices have no length to set.
        if self.length > 0 {
            self.file.set_len(0).await?;
            self.length = self.file.seek(SeekFrom::Start(0)).await?;
        }
        Ok(())
    }

    /// Continues after the bytes of an earlier run.
    pub(crate) async fn resume(&mut self) -> io::Result<()> {
        self.sum = sum(&self.part).await?;
        Ok(())
    }

    pub(crate) async fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.sum.update(data);
        self.file.write_all(data).await?;
        self.length += data.len() as u64;
        Ok(())
    }

    /// Waits for the last write, because an unfinished one keeps the file open and locked.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        let flushed = self.file.flush().await;
        self.is_kept &= flushed.is_ok();
        flushed
    }

    /// Renames the part to the file, and returns its SHA-256. After a loss of power either the old
    /// or the new file exists.
    pub(crate) async fn finish(mut self) -> io::Result<String> {
        self.flush().await?;
        self.file.sync_all().await?;
        let renamed = fs::rename(&self.part, &self.whole).await;
        renamed.map_err(|error| {
            let whole = self.whole.display();
            let advice = "is it open in another program?";
            io::Error::new(
                error.kind(),
                format!("{whole} cannot be replaced: {error}; {advice}"),
            )
        })?;
        self.keep();
        Ok(hex(self.sum.clone()))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_kept {
            // The lock is still held, so the part that this removes is not another writer's.
            drop(std::fs::remove_file(&self.part));
        }
    }
}

/// Checks, before any request, that [`whole`] can write to the path of an option.
pub(crate) async fn check(option: &str, path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    own(path).await.map(drop).map_err(|error| {
        let advice = "name a file in an existing folder that you may write to";
        Failure::usage(format!("{option} {}: {error}; {advice}", path.display()))
    })
}

/// Writes `data` to `path`.
pub(crate) async fn whole(path: &Path, data: &[u8]) -> io::Result<()> {
    let mut part = own(path).await?;
    part.clear().await?;
    part.write(data).await?;
    part.finish().await.map(drop)
}

/// Returns the SHA-256 of a file.
pub(crate) async fn sum(path: &Path) -> io::Result<Sha256> {
    let path = path.to_owned();
    spawn_blocking(|| {
        let mut file = std::fs::File::open(path)?;
        let (mut sum, mut buffer) = (Sha256::new(), vec![0; BUFFER]);
        loop {
            let length = file.read(&mut buffer)?;
            match buffer.get(..length) {
                None | Some([]) => break,
                Some(data) => sum.update(data),
            }
        }
        Ok(sum)
    })
    .await?
}

pub(crate) fn hex(sum: Sha256) -> String {
    sum.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Opens the part of a file that is written in one piece.
pub(crate) async fn own(path: &Path) -> io::Result<Part> {
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(io::Error::other(
            "a name that ends with a slash is a folder",
        ));
    }
    // A link stays, and its target gets the data. If it leads to an open file, as /dev/stdout does,
    // a rename would replace the link.
    let link = fs::symlink_metadata(path).await;
    let path = match link.is_ok_and(|link| link.is_symlink()) {
        true if path.starts_with("/dev") || path.starts_with("/proc") => {
            return Err(io::Error::other("the system reserves this name"));
        }
        true => &fs::canonicalize(path).await?,
        false => path,
    };
    if fs::metadata(path).await.is_ok_and(|there| !there.is_file()) {
        return Err(io::Error::other("it exists and is not a regular file"));
    }
    // Waits a moment for another process that writes the same file.
    let mut tries = 0..100;
    loop {
        match Part::open(path).await {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && tries.next().is_some() => {
                sleep(MOMENT).await;
            }
            opened => return opened,
        }
    }
}

/// Opens a file for one writer, and locks it.
fn locked(path: &Path) -> io::Result<std::fs::File> {
    // Refuses links, which may lead to a file of another user, or create one. Devices such as
    // /dev/full are fine, because they cannot lose data.
    let link = std::fs::symlink_metadata(path);
    if link.is_ok_and(|link| link.is_symlink())
        && std::fs::metadata(path).map_or(true, |there| there.is_file())
    {
        return Err(io::Error::other("its .part file is a symbolic link"));
    }
    let file = held(path)?;
    // Another process may have renamed or removed the file between the open and the lock.
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let number = |file: std::fs::Metadata| (file.dev(), file.ino());
        let named = std::fs::metadata(path).ok().map(number);
        if named != Some(number(file.metadata()?)) {
            return Err(busy());
        }
    }
    Ok(file)
}

fn busy() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "another run writes to it")
}

/// Opens a file, and locks it if the file system has locks. It is not truncated, because a file with
/// this name may be a user's data.
fn held(path: &Path) -> io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    let options = options.write(true).create(true).truncate(false);
    let file = options.open(path)?;
    match file.try_lock() {
        Err(std::fs::TryLockError::WouldBlock) => Err(busy()),
        Err(std::fs::TryLockError::Error(error)) if error.kind() != io::ErrorKind::Unsupported => {
            Err(error)
        }
        _ => Ok(file),
    }
}

/// Creates the folder, and locks it because two runs would write to the same parts.
pub(crate) fn alone(out: &Path) -> Result<std::fs::File, Failure> {
    let locked = std::fs::create_dir_all(out).and_then(|()| held(&out.join(LOCK)));
    locked.map_err(|error| {
        let out = out.display();
        let advice = match error.kind() {
            io::ErrorKind::ResourceBusy => "wait for its end, or name another folder",
            _ => "name a folder that you may write to",
        };
        Failure::usage(format!("--out {out}: {error}; {advice}"))
    })
}

/// Whether all other files will fail with the same error, as on a full disk. A single folder that
/// cannot be written to is no such error.
pub(crate) fn is_the_disk(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(
        error.kind(),
        StorageFull | QuotaExceeded | ReadOnlyFilesystem
    ) || is_too_many_files(error)
}

/// Whether the process has no further file descriptor.
pub(crate) fn is_too_many_files(error: &io::Error) -> bool {
    error.raw_os_error() == Some(TOO_MANY_FILES)
}

/// Whether a component of the name is that of a part, a lock or a manifest.
pub(crate) fn is_reserved(name: &str) -> bool {
    let mut names = name.split('/');
    names.any(|name| name.ends_with(PART) || name == LOCK || name == MANIFEST)
}

/// Holds one or two chunks of a body. The default of two megabytes is too much for many files at
/// once.
const BUFFER: usize = 64 * 1024;

const MOMENT: Duration = Duration::from_millis(10);

pub(crate) const PART: &str = ".part";

/// EMFILE, which has no `ErrorKind`.
pub(crate) const TOO_MANY_FILES: i32 = 24;

/// Lock of the process that writes into a folder.
const LOCK: &str = ".tds.lock";

/// Record of the files in a folder.
pub(crate) const MANIFEST: &str = ".tds-manifest.jsonl";
