//! The manifest of an output folder: where each whole file came from.
//!
//! A file of JSON lines. A later line about a file replaces an earlier one. Unknown fields and lines that were cut are ignored.

use std::{
    collections::HashMap,
    fs,
    io::{self, Write},
    path::Path,
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

/// Appends entries, and compares files with those of earlier runs. The caller holds the lock of the folder.
#[derive(Debug)]
pub(crate) struct Manifest {
    base_url: String,
    /// By file, from earlier runs.
    entries: HashMap<String, Entry>,
    /// Guarded so that lines do not mix. Never held over an await.
    file: Mutex<fs::File>,
}

/// One line.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    file: String,
    /// As in the list.
    url: String,
    base_url: String,
}

/// The origin of an existing file by the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Same,
    Other,
    Unknown,
}

// === impl Manifest ===

impl Manifest {
    /// Opens the manifest of this folder for files of the service at `base_url`.
    pub(crate) fn open(out: &Path, base_url: &str) -> io::Result<Self> {
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).append(true).create(true);
        let mut file = options.open(out.join(MANIFEST))?;
        let text = io::read_to_string(&file)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        let entries = text.lines().filter_map(|line| {
            let entry: Entry = serde_json::from_str(line).ok()?;
            Some((entry.file.clone(), entry))
        });
        Ok(Self {
            base_url: base_url.trim_end_matches('/').to_owned(),
            entries: entries.collect(),
            file: Mutex::new(file),
        })
    }

    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }

    pub(crate) fn origin(&self, file: &Path, url: &str) -> Origin {
        let entry = file.to_str().and_then(|file| self.entries.get(file));
        match entry {
            Some(entry) if entry.url == url && entry.base_url == self.base_url => Origin::Same,
            Some(_) => Origin::Other,
            None => Origin::Unknown,
        }
    }

    /// Records a file that is whole and has its name. If the program ends before this, the next run downloads the file again.
    pub(crate) fn record(&self, file: &Path, url: &str) -> io::Result<()> {
        let entry = Entry {
            file: file.to_string_lossy().into_owned(),
            url: url.to_owned(),
            base_url: self.base_url.clone(),
        };
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&line)
    }
}

pub(crate) const MANIFEST: &str = ".tds-manifest.jsonl";
