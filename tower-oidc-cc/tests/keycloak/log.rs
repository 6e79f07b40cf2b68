//! The access log: the requests as the server records them.

/// The statuses of the requests for `target`, in the order of their answers.
///
/// A line ends as `"POST /path?query HTTP/1.1" 200 1383`.
pub(crate) fn statuses(log: &str, method: &str, target: &str) -> Vec<u16> {
    let request = format!("\"{method} /auth/realms/ServiceConnect/{target} ");
    log.lines()
        .filter_map(|line| {
            let (_, answer) = line.split_once(&request)?;
            let (_, status) = answer.split_once("\" ")?;
            status.split(' ').next()?.parse().ok()
        })
        .collect()
}
