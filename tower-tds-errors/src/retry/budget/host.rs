//! What a budget is kept for.

use http::Uri;

/// Host and port, in lower case (RFC 9110, section 4.2.3); one name for all URIs without any.
pub(super) fn host(uri: &Uri) -> Box<str> {
    let authority = uri.authority().map_or("-", |authority| authority.as_str());
    let host = authority.rsplit('@').next().unwrap_or_default();
    host.to_ascii_lowercase().into_boxed_str()
}
