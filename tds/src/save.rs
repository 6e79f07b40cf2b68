//! Files that are there whole or not at all: written beside, synced, and renamed into place.

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

/// A file that is being written, under a name of its own until it is whole. It is locked: two that wrote to it would mix
/// their bytes.
#[derive(Debug)]
pub(crate) struct Part {
    file: fs::File,
    paths: Paths,
}

/// What an earlier run has left of a file, and which one it was of. Nobody else writes to it meanwhile.
#[derive(Debug)]
pub(crate) struct Rest {
    file: fs::File,
    pub(crate) length: u64,
    pub(crate) etag: String,
    /// How long the file is when it is whole, if that was said.
    pub(crate) whole: Option<u64>,
}

/// What was asked for, and which bytes come: by that they can be gone on with later.
#[derive(Debug)]
pub(crate) struct Known<'a> {
    /// The whole URL.
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
    /// Begins the file `path` afresh.
    pub(crate) async fn create(path: &Path, known: Option<Known<'_>>) -> io::Result<Self> {
        let paths = Paths::of(path);
        let mut options = fs::OpenOptions::new();
        let file = held(options.write(true).create(true), &paths.part).await?;
        // In this order: a tag never stands beside bytes of another file.
        paths.forget().await?;
        // What is no file has no length to be set.
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

    /// Goes on with what is there.
    pub(crate) async fn append(path: &Path, rest: Rest) -> io::Result<Self> {
        let (paths, mut file) = (Paths::of(path), rest.file);
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
        // The file is held until this ends: what is removed is not another's yet.
        if flushed.is_err() || !fs::try_exists(&self.paths.etag).await? {
            self.paths.forget().await?;
            fs::remove_file(&self.paths.part).await?;
        }
        flushed
    }

    /// Gives up what is of no use.
    pub(crate) async fn discard(self) -> io::Result<()> {
        self.paths.forget().await?;
        self.stop().await
    }
}

// === impl Rest ===

impl Rest {
    /// What is left of `path`, if it is of this URL. What was written before the machine last started is not
    /// gone on with: its bytes may never have reached the disk, whatever its length says.
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

/// Tries, before anything is asked for, whether [`whole`] can write to what this option names.
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
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(io::Error::other(
            "a name that ends with a slash is that of a folder",
        ));
    }
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
    let name = path.with_file_name(name);
    // Somebody looks whether it is left over, or has the same number in a container of his own: both take a moment.
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

/// Removes what processes that do not live any more have left of [`whole`] for these.
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
            // Whoever lives holds his; it is the lock that says so, since a number may be another container's.
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
    // What a link leads to is somebody's, or would be made there. What is no file, such as /dev/full, has nothing to lose.
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
        // Where there are no locks, there is nothing to look at either.
        Err(std::fs::TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
        Err(std::fs::TryLockError::Error(error)) => return Err(error),
    }
    // Between the two it may have got its name, or have been removed.
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

/// Makes the folder and holds it: two runs would write to the same parts.
pub(crate) fn alone(out: &Path) -> Result<std::fs::File, Failure> {
    let refused = |error: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "the folder {} is of no use: {error}",
            out.display()
        ))
    };
    std::fs::create_dir_all(out).map_err(|error| refused(&error))?;
    // What has this name may be data of somebody who does not know it.
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

/// Whether all other files will meet the same. A folder that is closed is not it: others may be open.
pub(crate) fn is_the_disk(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(
        error.kind(),
        StorageFull | QuotaExceeded | ReadOnlyFilesystem
    )
}

/// Whether a file or folder in this could be taken for the part of another, or for a lock.
pub(crate) fn is_reserved(name: &str) -> bool {
    let names = Path::new(name).components().map(Component::as_os_str);
    names.filter_map(std::ffi::OsStr::to_str).any(|name| {
        name.ends_with(PART) || name.ends_with(ETAG) || name == LOCK || name == MANIFEST
    })
}

/// Which start of the machine this is; none where nobody says.
async fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").await;
    id.ok().map(|id| id.trim().to_owned())
}

/// A piece of a body or two; of many files at once, the default of two megabytes each is too much.
const BUFFER: usize = 64 * 1024;

const MOMENT: Duration = Duration::from_millis(10);

const PART: &str = ".part";

const ETAG: &str = ".part.etag";

/// Held by whoever writes into a folder.
const LOCK: &str = ".tds.lock";
