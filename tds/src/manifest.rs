//! Manifest of an output folder: where each file and each part came from.
//!
//! It has a line of JSON for each file; a later line about a file replaces an earlier one. Unknown
//! fields and incomplete lines are ignored.

use std::{
    collections::HashMap,
    fs,
    io::{self, Write},
    path::Path,
    sync::Mutex,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use crate::{list::Item, lock::lock, save::MANIFEST};

/// Appends entries, and compares files with the entries of earlier runs. Use it only while you hold
/// the lock of the folder.
#[derive(Debug)]
pub(crate) struct Manifest {
    base_url: String,
    accept: String,
    /// Id of the machine's last start, if the system has one.
    boot: Option<String>,
    /// The lock keeps lines apart. It is never held across an await.
    rows: Mutex<Rows>,
}

#[derive(Debug, Default)]
struct Rows {
    /// `None` for a job that writes nothing.
    file: Option<fs::File>,
    /// Entries by file name.
    whole: HashMap<String, Entry>,
    parts: HashMap<String, Entry>,
}

/// One line of the manifest.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Entry {
    file: String,
    /// URL of the file, as in the list.
    url: String,
    base_url: String,
    /// Media types that were requested.
    accept: String,
    #[serde(flatten)]
    version: Version,
    /// Time of the entry, in seconds since 1970.
    time: u64,
    /// Start of the machine after which a part was written. After a restart its bytes may be
    /// missing, because they may never have reached the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<String>,
}

/// Version of a file's bytes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Version {
    pub(crate) etag: Option<String>,
    pub(crate) length: Option<u64>,
    /// SHA-256 of a whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<String>,
}

// === impl Manifest ===

impl Manifest {
    /// Opens the manifest of this folder for files of the service at `base_url` with these media
    /// types: to read it, or also to append to it.
    pub(crate) fn open(
        out: &Path,
        base_url: &str,
        accept: &str,
        appends: bool,
    ) -> io::Result<Self> {
        let path = out.join(MANIFEST);
        // As bytes: a line that a full disk has cut may end within a character.
        let lines = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            lines => lines?,
        };
        let mut rows = Rows::default();
        if appends {
            let mut options = fs::OpenOptions::new();
            let mut file = options.append(true).create(true).open(path)?;
            if !lines.is_empty() && !lines.ends_with(b"\n") {
                file.write_all(b"\n")?;
            }
            rows.file = Some(file);
        }
        for line in lines.split(|byte| *byte == b'\n') {
            if let Ok(entry) = serde_json::from_slice(line) {
                rows.put(entry);
            }
        }
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        Ok(Self {
            base_url: base_url.trim_end_matches('/').to_owned(),
            accept: accept.to_owned(),
            boot: boot.ok().map(|boot| boot.trim().to_owned()),
            rows: Mutex::new(rows),
        })
    }

    /// Returns why a file of this length is not the one that was recorded for the URL and the
    /// service, or `None` if it is. The SHA-256 is compared if it is given.
    pub(crate) fn outdated(
        &self,
        item: &Item,
        length: u64,
        sum: Option<&str>,
    ) -> Option<&'static str> {
        let rows = lock(&self.rows);
        let Some(entry) = rows.whole.get(&*item.name.to_string_lossy()) else {
            return Some("is not in .tds-manifest.jsonl");
        };
        if !self.is_of(entry, item) {
            return Some("came from another URL or service, or as another media type");
        }
        let is_as_long = entry.version.length.is_none_or(|was| was == length);
        let is_same = is_as_long && (sum.is_none() || sum == entry.version.sha256.as_deref());
        (!is_same).then_some("changed since its download")
    }

    /// Returns the version of a part that can be resumed, if it is of this URL and service.
    pub(crate) fn part(&self, item: &Item) -> Option<Version> {
        let rows = lock(&self.rows);
        let entry = rows.parts.get(&*item.name.to_string_lossy())?;
        let is_current = entry.part.is_some() && entry.part == self.boot;
        let is_resumable = is_current && entry.version.etag.is_some();
        (self.is_of(entry, item) && is_resumable).then(|| entry.version.clone())
    }

    /// Records that a part was begun. Returns whether a later run can resume it.
    pub(crate) fn begin(&self, item: &Item, version: Version) -> io::Result<bool> {
        let is_resumable = version.etag.is_some() && self.boot.is_some();
        // An earlier part of the file is no longer there.
        if is_resumable || self.part(item).is_some() {
            self.put(item, version, self.boot.clone())?;
        }
        Ok(is_resumable)
    }

    /// Records a whole file after it was renamed to its final name. If the program ends just before
    /// this call, the next run downloads the file again.
    pub(crate) fn record(&self, item: &Item, version: Version) -> io::Result<()> {
        self.put(item, version, None)
    }

    fn put(&self, item: &Item, version: Version, part: Option<String>) -> io::Result<()> {
        #[expect(
            clippy::disallowed_methods,
            reason = "a time for people and other programs"
        )]
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let entry = Entry {
            file: item.name.to_string_lossy().into_owned(),
            url: item.target.clone(),
            base_url: self.base_url.clone(),
            accept: self.accept.clone(),
            version,
            time: time.unwrap_or_default().as_secs(),
            part,
        };
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        let mut rows = lock(&self.rows);
        rows.put(entry);
        rows.file
            .as_ref()
            .map_or(Ok(()), |mut file| file.write_all(&line))
    }

    fn is_of(&self, entry: &Entry, item: &Item) -> bool {
        let is_same = entry.url == item.target && entry.base_url == self.base_url;
        is_same && entry.accept == self.accept
    }
}

// === impl Rows ===

impl Rows {
    fn put(&mut self, entry: Entry) {
        if entry.part.is_some() {
            self.parts.insert(entry.file.clone(), entry);
        } else {
            self.parts.remove(&entry.file);
            self.whole.insert(entry.file.clone(), entry);
        }
    }
}
