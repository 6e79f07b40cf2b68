//! The access log: what the server says that it was asked.

/// The statuses of the POSTs to `target`, in the order of their answers.
///
/// A line ends as `"POST /path?query HTTP/1.1" 200 1383`.
pub(crate) fn posts(log: &str, target: &str) -> Vec<u16> {
    let target = format!("/auth/realms/ServiceConnect/{target}");
    log.lines()
        .filter_map(|line| {
            let (_, request) = line.split_once("\"POST ")?;
            let (_, status) = request.strip_prefix(&target)?.split_once("\" ")?;
            status.split(' ').next()?.parse().ok()
        })
        .collect()
}
