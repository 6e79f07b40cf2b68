//! Addresses of requests: how they are shown, their usual ports, and those of this machine.

use std::net::IpAddr;

use http::{Uri, uri::Scheme};

/// Returns the address of a request without user information and query: its scheme, host, port and path.
///
/// ```
/// let uri = "https://me:pw@data.example:8443/v1/bus?key=4bT9".parse()?;
/// assert_eq!(tower_tds_outcome::place(&uri), "https://data.example:8443/v1/bus");
/// # Ok::<(), http::uri::InvalidUri>(())
/// ```
#[must_use]
pub fn place(uri: &Uri) -> String {
    let scheme = uri
        .scheme_str()
        .map_or_else(String::new, |it| format!("{it}://"));
    let authority = uri.authority().map_or("", |it| it.as_str());
    // A password may have an `@`.
    let host = authority.rsplit('@').next().unwrap_or_default();
    scheme + host + uri.path()
}

/// Whether a host is this machine: a loopback address, with or without brackets, or `localhost`.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|it| it.is_loopback())
}

/// Returns the port of `http` or `https` where an address names none.
#[doc(hidden)]
#[must_use]
pub fn default_port(scheme: &Scheme) -> Option<u16> {
    match scheme.as_str() {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    }
}
