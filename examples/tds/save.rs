//! Files that are there whole or not at all: written beside, synced, and renamed into place.

use std::{
    ffi::OsString,
    io::{self, SeekFrom},
    path::{Path, PathBuf},
};

use tokio::{
    fs,
    io::{AsyncSeekExt, AsyncWriteExt},
};

use crate::exit::Failure;

/// A file that is being written, under a name of its own until it is whole.
#[derive(Debug)]
pub(crate) struct Part {
    file: fs::File,
    paths: Paths,
}

/// What an earlier run has left of a file, and which one it was of.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) length: u64,
    pub(crate) etag: String,
}

#[derive(Debug)]
struct Paths {
    whole: PathBuf,
    part: PathBuf,
    etag: PathBuf,
}

// === impl Part ===

impl Part {
    /// Begins the file `path` afresh. With an entity tag, and what was asked for, what comes of it can be gone on with
    /// later.
    pub(crate) async fn create(path: &Path, known: Option<(&str, &str)>) -> io::Result<Self> {
        let paths = Paths::of(path);
        // In this order: a tag never stands beside bytes of another file.
        paths.forget().await?;
        let mut file = fs::File::create(&paths.part).await?;
        file.set_max_buf_size(BUFFER);
        if let Some(((etag, target), boot)) = known.zip(boot().await) {
            fs::write(&paths.etag, format!("{boot}\n{target}\n{etag}")).await?;
        }
        Ok(Self { file, paths })
    }

    /// Goes on with what is there.
    pub(crate) async fn append(path: &Path, rest: &Rest) -> io::Result<Self> {
        let paths = Paths::of(path);
        let mut file = fs::OpenOptions::new().write(true).open(&paths.part).await?;
        file.set_max_buf_size(BUFFER);
        file.seek(SeekFrom::Start(rest.length)).await?;
        Ok(Self { file, paths })
    }

    pub(crate) async fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.file.write_all(data).await
    }

    /// Makes it the file. After a loss of power the old one is there, or the new one, and nothing between.
    pub(crate) async fn finish(mut self) -> io::Result<()> {
        self.file.flush().await?;
        self.file.sync_all().await?;
        self.paths.forget().await?;
        fs::rename(&self.paths.part, &self.paths.whole).await
    }

    /// Gives up. What can be gone on with stays.
    pub(crate) async fn stop(mut self) -> io::Result<()> {
        let flushed = self.file.flush().await;
        drop(self.file);
        if flushed.is_err() || !fs::try_exists(&self.paths.etag).await? {
            self.paths.forget().await?;
            fs::remove_file(&self.paths.part).await?;
        }
        flushed
    }
}

// === impl Rest ===

impl Rest {
    /// What is left of `path`, if it is of `target`. What was written before the machine last started is not
    /// gone on with: its bytes may never have reached the disk, whatever its length says.
    pub(crate) async fn of(path: &Path, target: &str) -> Option<Self> {
        let paths = Paths::of(path);
        let known = fs::read_to_string(&paths.etag).await.ok()?;
        let (boot_then, known) = known.split_once('\n')?;
        let (of, etag) = known.split_once('\n')?;
        let length = fs::metadata(&paths.part).await.ok()?.len();
        let same = boot().await? == boot_then && of == target;
        (length > 0 && same).then(|| Self {
            length,
            etag: etag.to_owned(),
        })
    }
}

// === impl Paths ===

impl Paths {
    fn of(path: &Path) -> Self {
        let beside = |suffix| {
            let mut name = OsString::from(path);
            name.push(suffix);
            PathBuf::from(name)
        };
        Self {
            whole: path.to_owned(),
            part: beside(PART),
            etag: beside(ETAG),
        }
    }

    async fn forget(&self) -> io::Result<()> {
        match fs::remove_file(&self.etag).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Tries, before anything is asked for, whether [`whole`] can write to what this option names.
pub(crate) async fn check(option: &str, path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let tried = match own(path).await {
        Ok(part) => part.stop().await,
        Err(error) => Err(error),
    };
    tried.map_err(|error| {
        let advice = "name a file in a folder that is there and may be written to";
        Failure::usage(format!("{option} {}: {error}; {advice}", path.display()))
    })
}

/// Writes all of `data` to `path`. Two programs that write to one do not meet: each has a part of its own.
pub(crate) async fn whole(path: &Path, data: &[u8]) -> io::Result<()> {
    let mut part = own(path).await?;
    let name = part.paths.part.clone();
    let written = match part.write(data).await {
        Ok(()) => part.finish().await,
        Err(error) => Err(error),
    };
    if written.is_err() {
        // Nobody goes on with it.
        drop(fs::remove_file(name).await);
    }
    written
}

async fn own(path: &Path) -> io::Result<Part> {
    // A link stays: what it leads to gets the data. One of the system's own, such as /dev/stdout, leads to what is open
    // elsewhere, and that would have another file then.
    let led = fs::symlink_metadata(path).await;
    let path = match led.is_ok_and(|there| there.is_symlink()) {
        true if path.starts_with("/dev") || path.starts_with("/proc") => {
            return Err(io::Error::other("this name is the system's own"));
        }
        true => &fs::canonicalize(path).await?,
        false => path,
    };
    if fs::metadata(path).await.is_ok_and(|there| !there.is_file()) {
        return Err(io::Error::other("something that is no file has this name"));
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let mut part = Part::create(&path.with_file_name(name), None).await?;
    path.clone_into(&mut part.paths.whole);
    Ok(part)
}

/// Makes the folder and holds it: two runs would write to the same parts.
pub(crate) fn alone(out: &Path) -> Result<std::fs::File, Failure> {
    let refused = |error: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "the folder {} is of no use: {error}",
            out.display()
        ))
    };
    std::fs::create_dir_all(out).map_err(|error| refused(&error))?;
    let lock = std::fs::File::create(out.join(LOCK)).map_err(|error| refused(&error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(std::fs::TryLockError::WouldBlock) => Err(refused(&"another run writes to it")),
        Err(std::fs::TryLockError::Error(error)) => Err(refused(&error)),
    }
}

/// Whether all other files will meet the same. A folder that is closed is not it: others may be open.
pub(crate) fn is_the_disk(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(
        error.kind(),
        StorageFull | QuotaExceeded | ReadOnlyFilesystem
    )
}

/// Whether a file of this name could be taken for the part of another.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.ends_with(PART) || name.ends_with(ETAG) || name == LOCK
}

/// Which start of the machine this is; none where nobody says.
async fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").await;
    id.ok().map(|id| id.trim().to_owned())
}

/// A piece of a body or two; of many files at once, the default of two megabytes each is too much.
const BUFFER: usize = 64 * 1024;

const PART: &str = ".part";

const ETAG: &str = ".part.etag";

/// Held by whoever writes into a folder.
const LOCK: &str = ".tds.lock";
