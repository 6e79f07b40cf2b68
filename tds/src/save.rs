//! Atomic files: written under another name, synced, and renamed.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io::{self, SeekFrom},
    path::{Component, Path, PathBuf},
    time::Duration,
};

use tokio::{
    fs,
    io::{AsyncSeekExt, AsyncWriteExt},
    time::sleep,
};

use crate::{exit::Failure, manifest::MANIFEST};

/// A file in progress, under another name until it is whole.
///
/// It is locked, because two writers would mix their bytes.
#[derive(Debug)]
pub(crate) struct Part {
    file: fs::File,
    paths: Paths,
}

/// The part that an earlier run left of a file, locked against other writers.
#[derive(Debug)]
pub(crate) struct Rest {
    file: fs::File,
    pub(crate) length: u64,
    pub(crate) etag: String,
    /// The length of the whole file, if it was announced.
    pub(crate) whole: Option<u64>,
}

/// The request and the version of the bytes, which allow a later resume.
#[derive(Debug)]
pub(crate) struct Known<'a> {
    /// The absolute URL.
    pub(crate) url: &'a str,
    pub(crate) etag: &'a str,
    pub(crate) whole: Option<u64>,
}

#[derive(Debug)]
struct Paths {
    whole: PathBuf,
    part: PathBuf,
    etag: PathBuf,
}

// === impl Part ===

impl Part {
    /// Begins the file `path` from the start.
    pub(crate) async fn create(path: &Path, known: Option<Known<'_>>) -> io::Result<Self> {
        let paths = Paths::of(path);
        let mut options = fs::OpenOptions::new();
        let file = held(options.write(true).create(true), &paths.part).await?;
        // In this order, so that a tag is never beside bytes of another file.
        paths.forget().await?;
        // A device has no length to set.
        if file.metadata().await?.len() > 0 {
            file.set_len(0).await?;
        }
        if let Some((known, boot)) = known.zip(boot().await) {
            let Known { url, etag, whole } = known;
            let whole = whole.map(|whole| whole.to_string()).unwrap_or_default();
            fs::write(&paths.etag, format!("{boot}\n{url}\n{whole}\n{etag}")).await?;
        }
        Ok(Self { file, paths })
    }

    /// Resumes a part.
    pub(crate) async fn append(path: &Path, rest: Rest) -> io::Result<Self> {
        let (paths, mut file) = (Paths::of(path), rest.file);
        file.seek(SeekFrom::Start(rest.length)).await?;
        Ok(Self { file, paths })
    }

    pub(crate) async fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.file.write_all(data).await
    }

    /// Renames the part to the file. After a loss of power either the old or the new file exists.
    pub(crate) async fn finish(mut self) -> io::Result<()> {
        self.file.flush().await?;
        self.file.sync_all().await?;
        self.paths.forget().await?;
        fs::rename(&self.paths.part, &self.paths.whole).await
    }

    /// Stops writing. A part that can be resumed stays.
    pub(crate) async fn stop(mut self) -> io::Result<()> {
        let flushed = self.file.flush().await;
        // The lock is held until this ends, so the removed part is not another writer's.
        if flushed.is_err() || !fs::try_exists(&self.paths.etag).await? {
            self.paths.forget().await?;
            fs::remove_file(&self.paths.part).await?;
        }
        flushed
    }

    /// Removes the part.
    pub(crate) async fn discard(self) -> io::Result<()> {
        self.paths.forget().await?;
        self.stop().await
    }
}

// === impl Rest ===

impl Rest {
    /// Finds the part of `path`, if it belongs to this URL.
    ///
    /// A part from before the machine's last start is not resumed, because its bytes may never have
    /// reached the disk.
    pub(crate) async fn of(path: &Path, url: &str) -> Option<Self> {
        let paths = Paths::of(path);
        let file = held(fs::OpenOptions::new().write(true), &paths.part).await;
        let (file, known) = (file.ok()?, fs::read_to_string(&paths.etag).await.ok()?);
        let mut known = known.splitn(4, '\n');
        let same = known.next() == Some(&*boot().await?) && known.next() == Some(url);
        let whole = known.next()?.parse().ok();
        let etag = known.next()?.to_owned();
        let length = file.metadata().await.ok()?.len();
        (length > 0 && same).then_some(Self {
            file,
            length,
            etag,
            whole,
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

/// Checks, before any request, that [`whole`] can write to the path of an option.
pub(crate) async fn check(option: &str, path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let tried = match own(path).await {
        Ok(part) => {
            sweep([&part.paths.whole]);
            part.stop().await
        }
        Err(error) => Err(error),
    };
    tried.map_err(|error| {
        let advice = "name a file in a folder that is there and may be written to";
        Failure::usage(format!("{option} {}: {error}; {advice}", path.display()))
    })
}

/// Writes `data` to `path`. Each program has a part of its own, so that two of them do not collide.
pub(crate) async fn whole(path: &Path, data: &[u8]) -> io::Result<()> {
    let mut part = own(path).await?;
    let name = part.paths.part.clone();
    let written = match part.write(data).await {
        Ok(()) => part.finish().await,
        Err(error) => Err(error),
    };
    if written.is_err() {
        // This part is never resumed.
        drop(fs::remove_file(name).await);
    }
    written
}

async fn own(path: &Path) -> io::Result<Part> {
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(io::Error::other(
            "a name that ends with a slash is that of a folder",
        ));
    }
    // A link stays, and its target gets the data. A link such as /dev/stdout leads to an open file,
    // which a rename would replace.
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
    let name = path.with_file_name(name);
    // Another process may be checking the part, or may have the same id in another container. Both
    // take a moment.
    let mut tries = 0..100;
    let mut part = loop {
        match Part::create(&name, None).await {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && tries.next().is_some() => {
                sleep(MOMENT).await;
            }
            created => break created?,
        }
    };
    path.clone_into(&mut part.paths.whole);
    Ok(part)
}

/// Removes the parts that ended processes left of [`whole`] for these paths.
pub(crate) fn sweep<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) {
    let paths: BTreeSet<&Path> = paths.into_iter().map(PathBuf::as_path).collect();
    let folders: BTreeSet<_> = paths.iter().filter_map(|path| path.parent()).collect();
    for folder in folders {
        let here = Path::new(if folder == Path::new("") { "." } else { "" }).join(folder);
        for there in std::fs::read_dir(here).into_iter().flatten().flatten() {
            let name = there.file_name();
            let of = name
                .to_str()
                .and_then(|name| name.strip_suffix(PART)?.rsplit_once('.'));
            let Some((of, process)) = of else { continue };
            let is_own = process.parse::<u32>().is_ok()
                && paths.contains(&*folder.join(of))
                && there.file_type().is_ok_and(|kind| kind.is_file());
            // A living process holds the lock of its part. The lock decides, because another
            // container may use the same process id.
            let mut options = std::fs::OpenOptions::new();
            let file = is_own.then(|| options.write(true).open(there.path()));
            if let Some(Ok(file)) = file
                && file.try_lock().is_ok()
            {
                drop(std::fs::remove_file(there.path()));
            }
        }
    }
}

/// Opens a file for one writer alone.
async fn held(options: &fs::OpenOptions, path: &Path) -> io::Result<fs::File> {
    // A link may lead to a file of another user, or create one. A device, such as /dev/full, cannot
    // lose data.
    let led = fs::symlink_metadata(path).await;
    if led.is_ok_and(|there| there.is_symlink())
        && fs::metadata(path)
            .await
            .map_or(true, |there| there.is_file())
    {
        return Err(io::Error::other("its part's name is that of a link"));
    }
    let file = options.open(path).await?.into_std().await;
    let busy = || io::Error::new(io::ErrorKind::ResourceBusy, "another run writes to it");
    match file.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => return Err(busy()),
        // Without support for locks there is nothing to compare.
        Err(std::fs::TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
        Err(std::fs::TryLockError::Error(error)) => return Err(error),
    }
    // Between the open and the lock it may have been renamed or removed.
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let number = |file: std::fs::Metadata| (file.dev(), file.ino());
        let named = fs::metadata(path).await.ok().map(number);
        if named != Some(number(file.metadata()?)) {
            return Err(busy());
        }
    }
    let mut file = fs::File::from_std(file);
    file.set_max_buf_size(BUFFER);
    Ok(file)
}

/// Creates and locks the folder, because two runs would write to the same parts.
pub(crate) fn alone(out: &Path) -> Result<std::fs::File, Failure> {
    let refused = |error: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "the folder {} is of no use: {error}",
            out.display()
        ))
    };
    std::fs::create_dir_all(out).map_err(|error| refused(&error))?;
    // A file with this name may be a user's data, so it is not truncated.
    let mut options = std::fs::OpenOptions::new();
    let options = options.write(true).create(true).truncate(false);
    let lock = options.open(out.join(LOCK));
    let lock = lock.map_err(|error| refused(&error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(std::fs::TryLockError::WouldBlock) => Err(refused(&"another run writes to it")),
        Err(std::fs::TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
            Ok(lock)
        }
        Err(std::fs::TryLockError::Error(error)) => Err(refused(&error)),
    }
}

/// Whether all other files will fail with the same error. A single unwritable folder is not such an
/// error.
pub(crate) fn is_the_disk(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(
        error.kind(),
        StorageFull | QuotaExceeded | ReadOnlyFilesystem
    )
}

/// Whether a component of the name looks like a part or a lock.
pub(crate) fn is_reserved(name: &str) -> bool {
    let names = Path::new(name).components().map(Component::as_os_str);
    names.filter_map(std::ffi::OsStr::to_str).any(|name| {
        name.ends_with(PART) || name.ends_with(ETAG) || name == LOCK || name == MANIFEST
    })
}

/// The id of the machine's last start, or `None` if the system has none.
async fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").await;
    id.ok().map(|id| id.trim().to_owned())
}

/// One or two chunks of a body. The default of two megabytes is too much for many files at once.
const BUFFER: usize = 64 * 1024;

const MOMENT: Duration = Duration::from_millis(10);

const PART: &str = ".part";

const ETAG: &str = ".part.etag";

/// The lock of the process that writes into a folder.
const LOCK: &str = ".tds.lock";
