//! Lists: one target per line, with an optional file name after a TAB.

use std::{
    collections::HashMap,
    fs,
    io::{self, Read},
    path::{Component, Path, PathBuf},
};

use crate::{exit::Failure, save, target};

/// One line of a list.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// The line as in the list.
    pub(crate) line: String,
    pub(crate) target: String,
    /// A relative path that does not leave its folder.
    pub(crate) name: PathBuf,
}

/// Reads the list from a file, or from the standard input if that is `-`.
///
/// The whole list is checked before anything is sent.
pub(crate) fn read(source: &str) -> Result<Vec<Item>, Failure> {
    let mut text = String::new();
    let read = if source == "-" {
        io::stdin().read_to_string(&mut text)
    } else {
        fs::File::open(source).and_then(|mut file| file.read_to_string(&mut text))
    };
    read.map_err(|error| {
        Failure::usage(format!(
            "--list {source}: {error}; name a file with a path and query a line, or - for the standard input"
        ))
    })?;
    let items = parse(&text).map_err(|why| Failure::usage(format!("--list {source}: {why}")))?;
    if items.is_empty() {
        return Err(Failure::usage(format!(
            "--list {source}: it has no line such as /v1/live/bus"
        )));
    }
    Ok(items)
}

fn parse(text: &str) -> Result<Vec<Item>, String> {
    let mut lines_by_name = HashMap::new();
    let mut items = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let (target, name) = match line.split_once('\t') {
            Some((target, name)) => (target, named(name)),
            None => (line, Ok(PathBuf::from(derived(line)))),
        };
        let told = |why| format!("line {number}: {why}");
        target::check(target).map_err(told)?;
        let name = name.map_err(told)?;
        if let Some(other) = lines_by_name.insert(name.clone(), number) {
            let name = name.display();
            return Err(told(format!(
                "line {other} is written to {name}, too: give a name behind a TAB"
            )));
        }
        items.push(Item {
            line: line.to_owned(),
            target: target.to_owned(),
            name,
        });
    }
    for Item { name, .. } in &items {
        let mut folders = name.ancestors().skip(1);
        let other = folders.find_map(|folder| lines_by_name.get_key_value(folder));
        if let (Some((folder, other)), Some(number)) = (other, lines_by_name.get(name)) {
            let folder = folder.display();
            return Err(format!(
                "line {number}: line {other} is written to {folder}, which would have to be a folder: give another name"
            ));
        }
    }
    Ok(items)
}

/// Checks a given name: a relative path downwards.
fn named(name: &str) -> Result<PathBuf, String> {
    let refused = |why| Err(format!("{name:?} is no name for a file: {why}"));
    let path = Path::new(name);
    let down = |part| matches!(part, Component::Normal(_));
    // The text is compared as well, because `a//b` and `a/.` have the same components as `a/b` and
    // `a`.
    let plain: PathBuf = path.components().collect();
    if name.is_empty() || !path.components().all(down) || plain.as_os_str() != path.as_os_str() {
        return refused("it leaves the folder, or is none");
    }
    if name.contains(|c: char| c.is_control() || c == '\\') {
        return refused("write it without control characters and backslashes");
    }
    if save::is_reserved(name) {
        return refused(
            "tds uses this name for files that are not yet whole, its lock or its manifest",
        );
    }
    if name.split('/').any(|step| step.len() > LONGEST_STEP) {
        return refused("it is too long");
    }
    Ok(path.to_owned())
}

/// Derives a name from a target.
fn derived(target: &str) -> String {
    let plain = |c: char| match c {
        '.' | '-' | '%' | '$' | '=' | ',' | '+' | '@' => c,
        c if c.is_alphanumeric() => c,
        _ => '_',
    };
    let name: String = target.trim_start_matches('/').chars().map(plain).collect();
    // A name has at most 255 bytes, and parts need a suffix. The end of a target is kept, because
    // targets differ there; duplicate names are refused.
    let cut = name.len().saturating_sub(LONGEST);
    let cut = (cut..=name.len()).find(|at| name.is_char_boundary(*at));
    let name = name.get(cut.unwrap_or_default()..).unwrap_or_default();
    if name.is_empty() || name.starts_with('.') || save::is_reserved(name) {
        return format!("_{name}_");
    }
    name.to_owned()
}

const LONGEST: usize = 200;

/// 255 bytes without the longest suffix, `.4194304.part.etag`.
const LONGEST_STEP: usize = 237;
