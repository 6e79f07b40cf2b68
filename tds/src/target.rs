//! Targets: a path with its query, sent byte for byte.

use http::Uri;

/// Checks a target before anything is sent.
///
/// # Errors
/// If the target is not valid. The error names the correction.
pub(crate) fn check(target: &str) -> Result<(), String> {
    let unusable = |why| Err(format!("{target:?} is no target: {why}"));
    if target.contains("://") {
        return unusable("TDS_BASE_URL has the host, give the path that follows it");
    }
    if !target.starts_with('/') {
        return unusable("begin it with a slash, as in /v1/live/bus");
    }
    if target.contains('#') {
        return unusable("a fragment is not sent; write # as %23");
    }
    match target.parse::<Uri>() {
        Ok(_) => Ok(()),
        Err(_) => unusable("write spaces and other special characters as %20 and so on"),
    }
}

/// As [`check`], for an argument.
pub(crate) fn argument(target: &str) -> Result<String, String> {
    check(target).map(|()| target.to_owned())
}
