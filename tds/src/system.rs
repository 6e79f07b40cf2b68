//! Differences between systems: the service manager, and the folders of a user.

use std::{
    env,
    path::{Path, PathBuf},
};

/// Notifies systemd, if it has started this program and waits for that (`sd_notify`).
pub(crate) fn notify(lines: &[&str]) {
    #[cfg(unix)]
    {
        let states: Vec<_> = lines
            .iter()
            .map(|it| sd_notify::NotifyState::Custom(it))
            .collect();
        drop(sd_notify::notify(&states));
    }
    #[cfg(not(unix))]
    let _ = lines;
}

/// Returns the folder in which the state of this user's programs is kept.
pub(crate) fn state_folder() -> Option<String> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    let below = |home: PathBuf| home.join(".local/state");
    let base = set("XDG_STATE_HOME").map(PathBuf::from);
    let base = base.or_else(|| Some(below(set("HOME")?.into())));
    let local = || set("LOCALAPPDATA").filter(|_| cfg!(windows));
    let base = base.or_else(|| Some(local()?.into()));
    // Without `HOME` the system knows the folder of a user, except of most services on Linux.
    let known = || env::home_dir().filter(|_| !cfg!(target_os = "linux"));
    let base = base.or_else(|| known().map(below))?;
    base.join("tds").into_os_string().into_string().ok()
}

/// Returns why Windows cannot hold a file of this name, or would hold it under another one.
pub(crate) fn not_on_windows(name: &str) -> Option<&'static str> {
    name.split('/').find_map(|step| {
        let stem = step.split('.').next().unwrap_or_default().trim_end();
        let stem = stem.to_ascii_lowercase();
        let numbered = ["com", "lpt"]
            .iter()
            .find_map(|device| stem.strip_prefix(device));
        let is_number = |rest: &str| rest.chars().count() == 1 && "0123456789¹²³".contains(rest);
        match step {
            _ if step.contains(['<', '>', ':', '"', '|', '?', '*', '\\']) => {
                Some("it has one of the characters < > : \" | ? * \\")
            }
            _ if step.ends_with(['.', ' ']) => Some("it ends with a dot or a blank"),
            _ if ["con", "prn", "aux", "nul", "conin$", "conout$"].contains(&&*stem)
                || numbered.is_some_and(is_number) =>
            {
                Some("it is the name of a device")
            }
            _ => None,
        }
    })
}

/// Returns a name as this system compares it with others.
pub(crate) fn compared(name: &Path) -> String {
    let name = name.to_string_lossy();
    match cfg!(any(windows, target_os = "macos")) {
        true => name.to_lowercase(),
        false => name.into_owned(),
    }
}
