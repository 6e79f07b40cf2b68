//! Headers that belong to one connection, so that a proxy may not pass them on.

use http::HeaderMap;
use http::header::{CONNECTION, HeaderName, TE, TRANSFER_ENCODING, UPGRADE};

/// Removes the headers that belong to the connection instead of the message.
///
/// These are `Connection` and what it lists, `Transfer-Encoding`, `TE`, `Upgrade` (RFC 9110, section
/// 7.6.1), and three that some senders still add: `Keep-Alive`, `Proxy-Connection` and
/// `HTTP2-Settings`.
///
/// Call it before you pass a message on, because the next sender sets these headers for its own
/// connection. `Content-Length` stays: in a response to HEAD it is part of the message.
///
/// # Examples
///
/// ```
/// use http::HeaderMap;
/// use tower_tds_outcome::remove_connection_headers;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("connection", "close, x-hop".parse().unwrap());
/// headers.insert("x-hop", "1".parse().unwrap());
/// headers.insert("accept", "application/json".parse().unwrap());
/// remove_connection_headers(&mut headers);
/// assert_eq!(headers.len(), 1);
/// ```
pub fn remove_connection_headers(headers: &mut HeaderMap) {
    // Most messages have few headers and none of these, so comparing names costs less than looking
    // each one up by its hash.
    if headers.keys().any(is_of_connection) {
        remove(headers);
    }
}

#[cold]
fn remove(headers: &mut HeaderMap) {
    let listed = headers.get_all(CONNECTION).into_iter();
    let listed = listed.filter_map(|value| value.to_str().ok());
    let listed = listed.flat_map(|value| value.split(','));
    let listed: Vec<HeaderName> = listed.filter_map(|name| name.trim().parse().ok()).collect();
    let own: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_of_connection(name))
        .cloned()
        .collect();
    for name in listed.iter().chain(&own) {
        headers.remove(name);
    }
}

fn is_of_connection(name: &HeaderName) -> bool {
    [CONNECTION, TRANSFER_ENCODING, TE, UPGRADE].contains(name) || OLDER.contains(&name.as_str())
}

/// Headers that no current standard defines, and that some senders still add.
const OLDER: [&str; 3] = ["keep-alive", "proxy-connection", "http2-settings"];

#[cfg(test)]
mod tests;
