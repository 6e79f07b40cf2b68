//! One record: what was written of a request, and the way back.

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, uri};

/// The bytes are authority, path with query, and headers if any were written.
#[derive(Default)]
pub(super) struct Record {
    pub(super) method: Method,
    scheme: Option<Scheme>,
    /// Where the authority and the path with query end.
    authority: usize,
    target: usize,
    pub(super) bytes: Vec<u8>,
    /// The spare records below this one while it is spare, and how many these are.
    pub(super) below: Option<Box<Self>>,
    pub(super) depth: usize,
}

// === impl Record ===

impl Record {
    #[inline]
    pub(super) fn write(&mut self, method: &Method, uri: &Uri) {
        // Most often it is that of the request before.
        if self.method != *method {
            self.change(method);
        }
        self.scheme = uri.scheme().cloned();
        self.bytes.clear();
        if let Some(authority) = uri.authority() {
            self.bytes.extend_from_slice(authority.as_str().as_bytes());
        }
        self.authority = self.bytes.len();
        if let Some(target) = uri.path_and_query() {
            self.bytes.extend_from_slice(target.as_str().as_bytes());
        }
        self.target = self.bytes.len();
    }

    #[cold]
    fn change(&mut self, method: &Method) {
        self.method = method.clone();
    }

    /// Of each its two lengths and whether it is sensitive, as one write; then name and value.
    pub(super) fn add(&mut self, headers: &HeaderMap) {
        let bytes = &mut self.bytes;
        for (name, value) in headers {
            let name = name.as_str().as_bytes();
            let sensitive = usize::from(value.is_sensitive());
            let sizes = [name.len(), value.len(), sensitive].map(usize::to_ne_bytes);
            bytes.extend_from_slice(sizes.as_flattened());
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(value.as_bytes());
        }
    }

    pub(super) fn parts(&self) -> Option<[&str; 3]> {
        let scheme = self.scheme.as_ref().map_or("", |scheme| scheme.as_str());
        let (authority, target) = (self.authority()?, self.target()?);
        let path = target.split('?').next().unwrap_or_default();
        // Of `https://host?query`, which asks for the root.
        let path = if path.is_empty() && !target.is_empty() {
            "/"
        } else {
            path
        };
        Some([scheme, authority, path])
    }

    pub(super) fn uri(&self) -> Option<Uri> {
        let (authority, target) = (self.authority()?, self.target()?);
        let mut parts = uri::Parts::default();
        parts.scheme = self.scheme.clone();
        if !authority.is_empty() {
            parts.authority = Some(Authority::try_from(authority).ok()?);
        }
        if !target.is_empty() {
            parts.path_and_query = Some(PathAndQuery::try_from(target).ok()?);
        }
        Uri::from_parts(parts).ok()
    }

    pub(super) fn headers(&self) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        let mut rest = self.bytes.get(self.target..)?;
        while let ([name, value, sensitive, ..], _) = rest.as_chunks() {
            let [name, value, sensitive] =
                [name, value, sensitive].map(|size| usize::from_ne_bytes(*size));
            let after = rest.get(HEAD..)?;
            let (name, after) = after.split_at_checked(name)?;
            let (value, after) = after.split_at_checked(value)?;
            let mut value = HeaderValue::from_bytes(value).ok()?;
            value.set_sensitive(sensitive == 1);
            headers.append(HeaderName::from_bytes(name).ok()?, value);
            rest = after;
        }
        Some(headers)
    }

    fn authority(&self) -> Option<&str> {
        let bytes = self.bytes.get(..self.authority)?;
        std::str::from_utf8(bytes).ok()
    }

    fn target(&self) -> Option<&str> {
        let bytes = self.bytes.get(self.authority..self.target)?;
        std::str::from_utf8(bytes).ok()
    }
}

/// What the sizes of a header take.
const HEAD: usize = 3 * size_of::<usize>();
