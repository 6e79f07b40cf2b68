//! What a budget is kept for.

/// Host and port, in lower case (RFC 9110, section 4.2.3); one name for all URIs without any.
pub(super) fn host(authority: &str) -> Box<str> {
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = if host.is_empty() { "-" } else { host };
    host.to_ascii_lowercase().into_boxed_str()
}
