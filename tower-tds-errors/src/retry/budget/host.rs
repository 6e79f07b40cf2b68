//! What a budget is kept for.

use std::borrow::Cow;

/// Host and port, in lower case (RFC 9110, section 4.2.3); one name for all URIs without any.
pub(super) fn host(authority: &str) -> Cow<'_, str> {
    let host = authority.rsplit('@').next().unwrap_or_default();
    if host.is_empty() {
        Cow::Borrowed("-")
    } else if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}
