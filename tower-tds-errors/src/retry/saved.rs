//! The parts of a request that was given away, in a buffer that is used again and again.
//!
//! Bytes, where clones would be simpler: that of a `Uri` counts two references up and down again, and
//! that of a `HeaderMap` allocates twice, and once more for each value that nobody has cloned before.
//! This costs one copy of a few hundred bytes, and no allocation once the thread has a spare buffer.
//! Without the spare ones a call would execute a third more instructions, and a classified one two thirds.

use std::cell::Cell;

use http::header::{ACCEPT, RANGE, UPGRADE};
use http::uri::{self, Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use crate::error::Error;

/// What of a request changes the meaning of its answer: nothing by default.
///
/// A 416 means something else where a `Range` was asked for, a 423 where a lock was held, a page
/// where only data is accepted, and a 101 where no `Upgrade` was asked for. Take it before the request is given
/// away, for [`classify`](crate::classify).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// A part of the resource, so that a 416 may be about it.
    pub(crate) part: bool,
    /// What holds a lock, so that a 423 is about it.
    pub(crate) lock: bool,
    /// Data, so that a page is not what was asked for.
    pub(crate) data: bool,
    /// Another protocol, so that a 101 is the way there.
    pub(crate) upgrade: bool,
}

/// What a retry, and the text of an error, need of a request that was given away. It is one word,
/// since the services' futures are moved.
pub(crate) struct Saved {
    /// There until the drop.
    parts: Option<Box<Parts>>,
}

/// The bytes are authority, path with query, and headers if any were saved.
#[derive(Default)]
struct Parts {
    method: Method,
    scheme: Option<Scheme>,
    /// Where the authority and the path with query end.
    authority: usize,
    target: usize,
    bytes: Vec<u8>,
    /// The values of sensitive headers, in their order. They are shared, and not among the bytes: those
    /// are used again, and are not wiped.
    secrets: Vec<HeaderValue>,
    /// The spare buffers below this one while it is spare, and how many these are.
    below: Option<Box<Self>>,
    depth: usize,
}

thread_local! {
    /// A list through the spare buffers, so that taking one and giving it back is a write each.
    static SPARES: Cell<Option<Box<Parts>>> = const { Cell::new(None) };
}

/// What a request asks for, for the text of an error that may come late: a body holds no buffer, since
/// others may read it on another thread, or for hours.
pub(crate) struct Line {
    method: Method,
    uri: Uri,
}

// === impl Asked ===

impl Asked {
    /// What a request with these headers asks for.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        // One pass: a look-up hashes, and three cost more than the few headers that a request has.
        let mut asked = Self::default();
        let mut data = None;
        for (name, value) in headers {
            if name == ACCEPT {
                data = Some(data != Some(false) && is_data(value.as_bytes()));
            } else if name == RANGE {
                asked.part = true;
            } else if name == LOCK_TOKEN {
                asked.lock = true;
            } else if name == UPGRADE {
                asked.upgrade = true;
            }
        }
        asked.data = data == Some(true);
        asked
    }
}

/// Whether all that is accepted is JSON or XML.
fn is_data(accepted: &[u8]) -> bool {
    // What nearly all send who ask for data.
    if accepted == b"application/json" {
        return true;
    }
    let ends = |text: &[u8], name: &[u8]| {
        let start = text.len().checked_sub(name.len());
        let end = start.and_then(|start| text.get(start..));
        end.is_some_and(|end| end.eq_ignore_ascii_case(name))
    };
    accepted.split(|byte| *byte == b',').all(|range| {
        let kind = range.split(|byte| *byte == b';').next().unwrap_or_default();
        let kind = kind.trim_ascii();
        (ends(kind, b"json") || ends(kind, b"xml")) && !ends(kind, b"html+xml")
    })
}

// === impl Saved ===

impl Saved {
    /// What a request asks for, without headers.
    pub(crate) fn line(method: &Method, uri: &Uri) -> Self {
        let mut parts = take();
        parts.write(method, uri);
        Self { parts: Some(parts) }
    }

    /// All but the body and the extensions.
    #[inline]
    pub(super) fn head<B>(request: &Request<B>) -> Self {
        let mut parts = take();
        parts.write(request.method(), request.uri());
        parts.add(request.headers());
        Self { parts: Some(parts) }
    }

    /// What changes the meaning of its answer.
    pub(super) fn asked(&self) -> Asked {
        let headers = self.parts.as_ref().and_then(|parts| parts.headers());
        headers.map_or_else(Asked::default, |headers| Asked::of(&headers))
    }

    pub(super) fn method(&self) -> &Method {
        self.parts
            .as_ref()
            .map_or(&Method::GET, |parts| &parts.method)
    }

    /// The host with its port, or nothing.
    pub(super) fn authority(&self) -> &str {
        let parts = self.parts.as_ref();
        parts
            .and_then(|parts| parts.authority())
            .unwrap_or_default()
    }

    /// Names the request in an error.
    pub(crate) fn note(&self, error: &mut Error) {
        if let Some(uri) = self.parts.as_ref().and_then(|parts| parts.uri()) {
            error.facts_mut().note_request(self.method(), &uri);
        }
    }

    /// The request that was written, if it was a valid one.
    pub(super) fn request<B>(&self, body: B) -> Option<Request<B>> {
        let parts = self.parts.as_ref()?;
        let mut request = Request::new(body);
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri()?;
        *request.headers_mut() = parts.headers()?;
        Some(request)
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            give(parts);
        }
    }
}

// === impl Line ===

impl Line {
    pub(crate) fn new(method: &Method, uri: &Uri) -> Self {
        Self {
            method: method.clone(),
            uri: uri.clone(),
        }
    }

    /// Names the request in an error.
    pub(crate) fn note(&self, error: &mut Error) {
        error.facts_mut().note_request(&self.method, &self.uri);
    }
}

// === impl Parts ===

impl Parts {
    #[inline]
    fn write(&mut self, method: &Method, uri: &Uri) {
        // Most often it is that of the request before.
        if self.method != *method {
            self.method = method.clone();
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

    /// A line for each header, as on the wire; of a sensitive one its name alone.
    #[inline]
    fn add(&mut self, headers: &HeaderMap) {
        for (name, value) in headers {
            self.bytes.extend_from_slice(name.as_str().as_bytes());
            if value.is_sensitive() {
                self.secrets.push(value.clone());
            } else {
                self.bytes.push(b':');
                self.bytes.extend_from_slice(value.as_bytes());
            }
            self.bytes.push(b'\n');
        }
    }

    fn uri(&self) -> Option<Uri> {
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

    fn headers(&self) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        let mut secrets = self.secrets.iter();
        // Neither names nor values have a line feed, and names no colon.
        let lines = self.bytes.get(self.target..)?;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let mut parts = line.strip_suffix(b"\n")?.splitn(2, |byte| *byte == b':');
            let name = HeaderName::from_bytes(parts.next()?).ok()?;
            let value = match parts.next() {
                Some(value) => HeaderValue::from_bytes(value).ok()?,
                None => secrets.next()?.clone(),
            };
            headers.append(name, value);
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

/// A spare buffer with whatever was written on it, or a new one if the thread has none.
#[inline]
fn take() -> Box<Parts> {
    let spare = SPARES.try_with(|spares| {
        let mut spare = spares.take()?;
        spares.set(spare.below.take());
        Some(spare)
    });
    spare.ok().flatten().unwrap_or_else(fresh)
}

#[cold]
fn fresh() -> Box<Parts> {
    let mut parts = Box::<Parts>::default();
    parts.bytes.reserve(TYPICAL);
    parts
}

/// Keeps the buffer, if it is not a large one and there are few. A thread that is ending keeps
/// nothing.
#[inline]
fn give(mut parts: Box<Parts>) {
    parts.secrets.clear();
    if parts.bytes.capacity() > LARGEST {
        return;
    }
    let give = |spares: &Cell<Option<Box<Parts>>>| {
        let below = spares.take();
        let depth = below.as_ref().map_or(0, |below| below.depth);
        if depth < MOST {
            parts.depth = depth.saturating_add(1);
            parts.below = below;
            spares.set(Some(parts));
        } else {
            spares.set(below);
        }
    };
    SPARES.try_with(give).ok();
}

/// RFC 4918, section 10.5.
const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");

/// A URI, and the handful of headers that programs set themselves.
const TYPICAL: usize = 512;

/// What servers accept of a head by default (nginx: 8 KiB a line); beyond it is rare.
const LARGEST: usize = 8 * 1024;

/// Two for each of the 60 connections that the service allows, all polled by one thread.
const MOST: usize = 128;

#[cfg(test)]
mod tests;
