//! Stored responses in the form that a request accepts: not modified, one range, or coded (RFC
//! 9110, sections 8, 13 and 14).

use std::{
    io::{self, Write as _},
    ops::Bound,
    sync::{Arc, OnceLock},
};

use axum::{body, response::Response};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use headers::{
    ContentRange, ETag, HeaderMapExt as _, IfModifiedSince, IfNoneMatch, IfRange, LastModified,
    Range,
};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{
        ACCEPT_ENCODING, ACCEPT_RANGES, AGE, CONTENT_ENCODING, CONTENT_TYPE, ETAG,
        IF_MODIFIED_SINCE, IF_NONE_MATCH, RANGE, VARY, X_CONTENT_TYPE_OPTIONS,
    },
};

use crate::header;

/// Bytes of a response, as they came and in each coding.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    identity: Bytes,
    is_text: bool,
    /// Coded bytes. Empty until they are made, and for responses that are not coded.
    coded: Arc<OnceLock<Vec<(&'static str, Bytes)>>>,
}

// === impl Stored ===

impl Stored {
    /// Stores a response, and begins to code it if it is a text. Users get it uncoded until that is
    /// done.
    pub(crate) fn new(identity: Bytes, headers: &HeaderMap) -> Self {
        let coded = Arc::<OnceLock<_>>::default();
        let is_text = is_text(headers);
        if is_text && (SMALL..=LARGE).contains(&identity.len()) {
            let (coded, identity) = (Arc::clone(&coded), identity.clone());
            tokio::task::spawn_blocking(move || {
                let all = [("br", brotli(&identity)), ("gzip", gzip(&identity))];
                let all = all.into_iter().filter_map(|(name, coded)| {
                    let coded = coded.ok().filter(|coded| coded.len() < identity.len());
                    Some((name, coded?))
                });
                drop(coded.set(all.collect()));
            });
        }
        Self {
            identity,
            is_text,
            coded,
        }
    }

    pub(crate) const fn bytes(&self) -> &Bytes {
        &self.identity
    }

    /// Returns how many bytes this takes in memory.
    pub(crate) fn len(&self) -> usize {
        let coded = self.coded.get().into_iter().flatten();
        self.identity.len() + coded.map(|(_, coded)| coded.len()).sum::<usize>()
    }

    /// Adds the headers that every representation has. Doing so once saves each user's response
    /// from growing the map.
    pub(crate) fn prepare(&self, headers: &mut HeaderMap) {
        if self.is_text && !header::members(headers, &VARY).contains(&OURS.to_owned()) {
            headers.append(VARY, HeaderValue::from_static(OURS));
        }
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(AGE, HeaderValue::from_static("0"));
    }

    /// Selects the representation for a user's request. `headers` are those of the response.
    pub(crate) fn response(&self, mut headers: HeaderMap, asked: &HeaderMap) -> Response {
        let mut coded = self.coded.get().into_iter().flatten();
        let coded = coded.find(|(name, _)| !asked.contains_key(RANGE) && accepts(asked, name));
        if let Some((name, _)) = coded {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(name));
            let tag = headers.get(ETAG).and_then(|tag| tag.to_str().ok());
            let tag = tag.and_then(|tag| Some(format!("{}-{name}\"", tag.strip_suffix('"')?)));
            match tag.and_then(|tag| HeaderValue::from_str(&tag).ok()) {
                Some(tag) => drop(headers.insert(ETAG, tag)),
                None => drop(headers.remove(ETAG)),
            }
        }
        let body = coded.map_or(&self.identity, |(_, body)| body);
        let conditions = [IF_NONE_MATCH, IF_MODIFIED_SINCE, RANGE];
        if conditions.iter().all(|name| !asked.contains_key(name)) {
            let mut response = Response::new(body::Body::from(body.clone()));
            *response.headers_mut() = headers;
            return response;
        }
        let tag = headers.typed_get::<ETag>();
        let date = headers.typed_get::<LastModified>();
        let (status, body) = if is_known(asked, tag.as_ref(), date) {
            headers.remove(CONTENT_TYPE);
            (StatusCode::NOT_MODIFIED, Bytes::new())
        } else {
            let condition = asked.typed_get::<IfRange>();
            let is_same = condition.is_none_or(|it| !it.is_modified(tag.as_ref(), date.as_ref()));
            let range = asked.typed_get::<Range>().filter(|_| is_same);
            part(body, range, &mut headers)
        };
        let mut response = Response::new(body::Body::from(body));
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        response
    }
}

/// Whether the user already has this representation (RFC 9110, section 13.2.2).
fn is_known(asked: &HeaderMap, tag: Option<&ETag>, date: Option<LastModified>) -> bool {
    if let Some(tags) = asked.typed_get::<IfNoneMatch>() {
        return tag.is_some_and(|tag| !tags.precondition_passes(tag));
    }
    let since = asked.typed_get::<IfModifiedSince>().zip(date);
    since.is_some_and(|(since, date)| !since.is_modified(date.into()))
}

/// Returns one range of the body, or all of it if several or none are requested.
fn part(body: &Bytes, range: Option<Range>, headers: &mut HeaderMap) -> (StatusCode, Bytes) {
    let length = body.len() as u64;
    let ranges = range.map(|range| range.satisfiable_ranges(length).collect::<Vec<_>>());
    let (start, end) = match ranges.as_deref() {
        Some([(Bound::Included(start), Bound::Included(end))]) => {
            (*start, end.saturating_add(1).min(length))
        }
        Some([(Bound::Included(start), Bound::Unbounded)]) => (*start, length),
        _ => return (StatusCode::OK, body.clone()),
    };
    let index = |at: u64| usize::try_from(at).ok();
    let bounds = index(start)
        .zip(index(end))
        .filter(|(start, end)| start < end);
    let range = ContentRange::bytes(start..end, length).ok();
    match bounds.zip(range) {
        Some(((start, end), range)) => {
            headers.typed_insert(range);
            (StatusCode::PARTIAL_CONTENT, body.slice(start..end))
        }
        None => {
            headers.typed_insert(ContentRange::unsatisfied_bytes(length));
            (StatusCode::RANGE_NOT_SATISFIABLE, Bytes::new())
        }
    }
}

/// Whether a user accepts a coding by its name (RFC 9110, section 12.5.3). A wildcard does not
/// count.
fn accepts(asked: &HeaderMap, name: &str) -> bool {
    let codings = header::members(asked, &ACCEPT_ENCODING);
    codings.iter().any(|coding| {
        let (coding, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let is_zero = weight.trim().trim_start_matches("q=").parse() == Ok(0.0_f32);
        coding.trim() == name && !is_zero
    })
}

fn is_text(headers: &HeaderMap) -> bool {
    let media = header::media(headers);
    let mut texts = ["json", "xml", "csv", "javascript"].iter();
    media.starts_with("text/") || texts.any(|it| media.contains(it))
}

fn gzip(data: &[u8]) -> io::Result<Bytes> {
    let mut coder = GzEncoder::new(Vec::new(), Compression::default());
    coder.write_all(data)?;
    coder.finish().map(Bytes::from)
}

fn brotli(mut data: &[u8]) -> io::Result<Bytes> {
    let mut coded = Vec::new();
    let terms = brotli::enc::BrotliEncoderParams {
        quality: 5,
        ..Default::default()
    };
    brotli::BrotliCompress(&mut data, &mut coded, &terms)?;
    Ok(coded.into())
}

/// Header by which responses of this server vary.
const OURS: &str = "accept-encoding";

/// Shorter texts are not coded, because one packet holds them anyway.
const SMALL: usize = 1_024;

/// Longer texts are not coded, because that would keep a processor busy for a second.
const LARGE: usize = 16 << 20;
