//! Lists: one target per line, with an optional file name after a TAB. Ranges make several out of
//! one line.

use std::{
    collections::HashMap,
    fs,
    io::{self, Read},
    iter,
    path::{Path, PathBuf},
};

use http::Uri;
use time::{Date, Month};

use crate::{
    exit::Failure,
    save::{self, PART},
    system,
};

/// One resource of a list, with the name of its file.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// Line of the list, after its ranges are expanded.
    pub(crate) line: String,
    pub(crate) target: String,
    /// Relative path that does not leave its folder.
    pub(crate) name: PathBuf,
}

/// Reads the list from the file `source`, or from the standard input if `source` is `-`.
///
/// Checks the whole list, so that a typo in its last line costs no request.
pub(crate) fn read(source: &str) -> Result<Vec<Item>, Failure> {
    let mut text = String::new();
    let read = if source == "-" {
        io::stdin().read_to_string(&mut text)
    } else {
        fs::File::open(source).and_then(|mut file| file.read_to_string(&mut text))
    };
    read.map_err(|error| {
        Failure::usage(format!(
            "--list {source}: {error}; name a file with one path and query per line, or - for the standard input"
        ))
    })?;
    let items = parse(&text).map_err(|why| Failure::usage(format!("--list {source}: {why}")))?;
    if items.is_empty() {
        return Err(Failure::usage(format!(
            "--list {source}: no line has a path, such as /v1/live/bus"
        )));
    }
    Ok(items)
}

pub(crate) fn parse(text: &str) -> Result<Vec<Item>, String> {
    let mut lines_by_name = HashMap::new();
    let mut items = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let of_line = |why| format!("line {number}: {why}");
        if line.len() > LONGEST_LINE {
            return Err(of_line(format!("longer than {LONGEST_LINE} bytes")));
        }
        for line in expanded(line).map_err(of_line)? {
            let (target, name) = match line.split_once('\t') {
                Some((target, name)) => (target, named(name)),
                None => (&*line, Ok(PathBuf::from(derived(&line)))),
            };
            let target = self::target(target).map_err(of_line)?;
            if name
                .as_deref()
                .is_ok_and(|name| name.to_string_lossy().contains("{}"))
            {
                let why = "the name has a {} that no range of the path fills";
                return Err(of_line(why.to_owned()));
            }
            let name = name.map_err(of_line)?;
            if let Some(other) = lines_by_name.insert(system::compared(&name), number) {
                let name = name.display();
                return Err(of_line(format!(
                    "line {other} has the same file name, {name}: give another one after a TAB"
                )));
            }
            items.push(Item {
                target,
                line: line.clone(),
                name,
            });
            if items.len() > MOST {
                return Err(of_line(format!("more than {MOST} files: split the list")));
            }
        }
    }
    let is_taken = |folder: &Path| lines_by_name.contains_key(&system::compared(folder));
    let both = items
        .iter()
        .find_map(|item| item.name.ancestors().skip(1).find(|it| is_taken(it)));
    match both {
        Some(name) => Err(format!(
            "{} is the name of a file and of a folder",
            name.display()
        )),
        None => Ok(items),
    }
}

/// Expands the ranges of a line. `{1..12}`, `{01..12}`, `{2026-01..2026-12}`,
/// `{2026-01-01..2026-01-31}` and `{bus,metro}` in the path are ranges, and each value replaces a
/// `{}` in the name.
fn expanded(line: &str) -> Result<Vec<String>, String> {
    let mut open = vec![line.to_owned()];
    let mut lines = Vec::new();
    while let Some(line) = open.pop() {
        let (target, name) = line.split_once('\t').unzip();
        let target = target.unwrap_or(&line);
        let range = target.match_indices('{').find_map(|(at, _)| {
            let (before, rest) = target.split_at(at);
            let (range, after) = rest.strip_prefix('{')?.split_once('}')?;
            Some((before, values(range)?, after))
        });
        let Some((before, values, after)) = range else {
            let open = target.rsplit_once('{').map(|(_, rest)| rest);
            if open.is_some_and(|rest| !rest.contains('}')) {
                return Err("a { is not closed: close the range with }, or write %7B".to_owned());
            }
            lines.push(line);
            continue;
        };
        open.extend(values?.iter().rev().map(|value| match name {
            Some(name) => format!("{before}{value}{after}\t{}", name.replacen("{}", value, 1)),
            None => format!("{before}{value}{after}"),
        }));
        if lines.len() + open.len() > MOST {
            return Err(format!("more than {MOST} files: split the list"));
        }
    }
    Ok(lines)
}

/// Returns the values of a range, at least one and at most [`MOST`] of them. Returns `None` if the
/// text is no range, because the service may read the braces itself.
fn values(range: &str) -> Option<Result<Vec<String>, String>> {
    let Some((first, last)) = range.split_once("..") else {
        let plain = |c: char| c.is_alphanumeric() || "-_.~%".contains(c);
        let mut values = range.split(',');
        let is_list =
            range.contains(',') && values.all(|it| !it.is_empty() && it.chars().all(plain));
        return is_list.then(|| Ok(range.split(',').map(str::to_owned).collect()));
    };
    let month = |text: &str| day(&format!("{text}-01"));
    let values = if let Some((first, last)) = day(first).zip(day(last)) {
        dates(first, last, Date::next_day)
            .map(|day| day.to_string())
            .collect()
    } else if let Some((first, last)) = month(first).zip(month(last)) {
        let months = dates(first, last, next_month).map(|day| day.to_string());
        months
            .filter_map(|day| day.strip_suffix("-01").map(str::to_owned))
            .collect()
    } else {
        numbers(first, last).unwrap_or_default()
    };
    let is_right = (1..=MOST).contains(&values.len());
    Some(is_right.then_some(values).ok_or_else(|| {
        format!(
            "{{{range}}} is not a range of at most a million numbers, months or days that exist, the \
             earliest first; write {{1..12}}, {{2026-01..2026-12}} or {{2026-01-01..2026-01-31}}"
        )
    }))
}

fn numbers(first: &str, last: &str) -> Option<Vec<String>> {
    let is_padded = first.starts_with('0');
    let width = if is_padded { first.len() } else { 1 };
    let numbers = first.parse::<u64>().ok()?..=last.parse().ok()?;
    let numbers = numbers.take(MOST + 1);
    Some(numbers.map(|n| format!("{n:0width$}")).collect())
}

fn dates(first: Date, last: Date, next: fn(Date) -> Option<Date>) -> impl Iterator<Item = Date> {
    let dates = iter::successors(Some(first), move |date| next(*date));
    dates.take_while(move |date| *date <= last).take(MOST + 1)
}

fn next_month(date: Date) -> Option<Date> {
    let month = date.month().next();
    let year = date.year() + i32::from(month == Month::January);
    Date::from_calendar_date(year, month, 1).ok()
}

/// Parses a day such as 2026-01-31.
fn day(text: &str) -> Option<Date> {
    let [year, month, day] = text.split('-').collect::<Vec<_>>()[..] else {
        return None;
    };
    let month = Month::try_from(month.parse::<u8>().ok()?).ok()?;
    let date = Date::from_calendar_date(year.parse().ok()?, month, day.parse().ok()?).ok()?;
    (date.to_string() == text).then_some(date)
}

/// Checks a target, a path with its query, before anything is sent.
///
/// # Errors
/// Names the correction if the target is not valid.
pub(crate) fn target(target: &str) -> Result<String, String> {
    let unusable = |why| Err(format!("{target:?} is not a path: {why}"));
    if target.contains("://") {
        return unusable("TDS_BASE_URL has the host; give the path that follows it");
    }
    if !target.starts_with('/') {
        return unusable("begin it with a slash, as in /v1/live/bus");
    }
    if target.contains('#') {
        return unusable("a fragment is not sent; write # as %23");
    }
    match target.parse::<Uri>() {
        Ok(_) => Ok(target.to_owned()),
        Err(_) => unusable("write spaces and other special characters as %20 and so on"),
    }
}

/// Checks a file name of the list: a relative path that stays within the folder.
fn named(name: &str) -> Result<PathBuf, String> {
    let refused = |why| Err(format!("{name:?} is not a file name: {why}"));
    if name.split('/').any(|step| ["", ".", ".."].contains(&step)) {
        return refused("it leaves the folder, or is not a plain relative path");
    }
    if let Some(why) = system::not_on_windows(name).filter(|_| cfg!(windows)) {
        return refused(why);
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
    // A slash separates folders on all systems.
    Ok(PathBuf::from(name))
}

/// Derives a file name from a target, by replacing what a name cannot contain.
fn derived(target: &str) -> String {
    let plain = |c: char| match c {
        '.' | '-' | '%' | '$' | '=' | ',' | '+' | '@' => c,
        c if c.is_alphanumeric() => c,
        _ => '_',
    };
    let name: String = target.trim_start_matches('/').chars().map(plain).collect();
    // Keeps the end of a target, where targets differ. Duplicate names are refused anyway.
    let cut = name.len().saturating_sub(LONGEST_STEP - 2);
    let cut = (cut..=name.len()).find(|at| name.is_char_boundary(*at));
    let name = name.get(cut.unwrap_or_default()..).unwrap_or_default();
    let is_illegal = name.starts_with('.') || system::not_on_windows(name).is_some();
    if name.is_empty() || is_illegal || save::is_reserved(name) {
        return format!("_{name}_");
    }
    name.to_owned()
}

/// Most files of one list. They take a third of a gigabyte of memory.
const MOST: usize = 1_000_000;

/// Longest request line that common servers accept.
const LONGEST_LINE: usize = 8 * 1024;

/// File systems allow 255 bytes, of which a part needs some for its suffix.
const LONGEST_STEP: usize = 255 - PART.len();
