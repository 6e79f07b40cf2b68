//! A request's head as bytes, in a buffer that is used again and again.

use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

mod pool;

/// What a retry and an error need of the head of a request that was given away.
///
/// Bytes, where clones would be simpler: a clone of a `HeaderMap` allocates twice, that of a value
/// or URI that nobody has cloned before once more, and each costs two atomic operations. This
/// costs one copy of its few hundred bytes, and no allocation once the thread has a spare buffer.
pub(crate) struct Tape {
    /// Scheme, authority, path and query; then the headers.
    bytes: Vec<u8>,
    scheme: usize,
    authority: usize,
    path: usize,
}

// === impl Tape ===

impl Tape {
    /// A tape that holds the URI.
    pub(crate) fn new(uri: &Uri) -> Self {
        let mut bytes = pool::take();
        let mut put = |part: &str| {
            bytes.extend_from_slice(part.as_bytes());
            bytes.len()
        };
        Self {
            scheme: put(uri.scheme_str().unwrap_or_default()),
            authority: put(uri.authority().map_or("", Authority::as_str)),
            path: put(uri.path_and_query().map_or("", PathAndQuery::as_str)),
            bytes,
        }
    }

    /// Adds the headers, once; `None` says that one of them is too long to write down.
    pub(crate) fn add(&mut self, headers: &HeaderMap) -> Option<()> {
        for (name, value) in headers {
            let name = name.as_str().as_bytes();
            // RFC 9110 has no bound; `http` has 64 KiB for names, and none for values.
            let (length, wide) = (u16::try_from(name.len()), u32::try_from(value.len()));
            let ([a, b], [c, d, e, f]) = (length.ok()?.to_le_bytes(), wide.ok()?.to_le_bytes());
            let sensitive = u8::from(value.is_sensitive());
            self.bytes.extend_from_slice(&[a, b, c, d, e, f, sensitive]);
            self.bytes.extend_from_slice(name);
            self.bytes.extend_from_slice(value.as_bytes());
        }
        Some(())
    }

    /// The URI, if it was a valid one.
    pub(crate) fn uri(&self) -> Option<Uri> {
        let (scheme, authority) = (self.part(0, self.scheme)?, self.scheme..self.authority);
        let authority = self.part(authority.start, authority.end)?;
        let path = self.part(self.authority, self.path)?;
        let mut parts = Parts::default();
        if !scheme.is_empty() {
            parts.scheme = Some(Scheme::try_from(scheme).ok()?);
        }
        if !authority.is_empty() {
            parts.authority = Some(Authority::try_from(authority).ok()?);
        }
        if !path.is_empty() {
            parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
        }
        Uri::from_parts(parts).ok()
    }

    /// The headers that were added, if they were valid ones.
    pub(crate) fn headers(&self) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        let mut rest = self.bytes.get(self.path..)?;
        while let Some((&[a, b, c, d, e, f, sensitive], after)) = rest.split_first_chunk() {
            let name = usize::from(u16::from_le_bytes([a, b]));
            let value = usize::try_from(u32::from_le_bytes([c, d, e, f])).ok()?;
            let (name, after) = after.split_at_checked(name)?;
            let (value, after) = after.split_at_checked(value)?;
            let mut value = HeaderValue::from_bytes(value).ok()?;
            value.set_sensitive(sensitive == 1);
            headers.append(HeaderName::from_bytes(name).ok()?, value);
            rest = after;
        }
        Some(headers)
    }

    fn part(&self, from: usize, to: usize) -> Option<&str> {
        str::from_utf8(self.bytes.get(from..to)?).ok()
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        pool::give(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests;
