//! Resources of the data endpoints: generated live and history data, and files. Requests may have
//! conditions and a range.

use std::{
    fs,
    ops::Range,
    path::{Component, Path},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri, header};
use ring::digest::{SHA256, digest};

use crate::{
    body::{Coding, Content, Source},
    clock::Clock,
    config::Config,
    text::ParseError,
};

/// Data endpoint of a request, with its query.
#[derive(Debug)]
pub(crate) struct Endpoint<'a> {
    /// Group of endpoints, which is also the realm role that it requires: `live` for a small JSON
    /// object, or `history` for lines of text with as many bytes as requested.
    pub(crate) role: &'static str,
    name: &'a str,
    query: &'a str,
}

/// Resource, before the conditions and the range of a request.
pub(crate) struct Resource {
    kind: &'static str,
    content: Content,
    /// Opaque part of the tag. A weak tag does not allow ranges.
    tag: String,
    is_strong: bool,
    modified: Option<SystemTime>,
}

// === impl Endpoint ===

impl<'a> Endpoint<'a> {
    /// Returns the endpoint at `uri`, if there is one.
    pub(crate) fn at(uri: &'a Uri) -> Option<Self> {
        let (group, name) = uri.path().strip_prefix("/v1/")?.split_once('/')?;
        let role = *["live", "history"].iter().find(|role| **role == group)?;
        let known = !name.is_empty() && !name.contains('/');
        known.then(|| Self {
            role,
            name,
            query: uri.query().unwrap_or_default(),
        })
    }

    /// Returns the endpoint's data at this time.
    pub(crate) fn data(&self, config: &Config, clock: &Clock) -> Result<Resource, ParseError> {
        match self.role {
            "live" => Ok(self.live(config, clock)),
            _ => self.history(),
        }
    }

    /// Returns a JSON object. It changes only if `live_every` is set; otherwise its size is its tag.
    fn live(&self, config: &Config, clock: &Clock) -> Resource {
        let version = config.live_every.map(|every| {
            let nanos = every.as_nanos().max(1);
            (clock.now().as_nanos() / nanos, nanos)
        });
        let number = version.map(|(number, _)| number);
        let text = live(self.name, config.live_bytes, number);
        let tag = match version {
            Some((version, _)) => format!("{}-{version}", text.len()),
            None => text.len().to_string(),
        };
        let begun = |(version, nanos): (u128, u128)| {
            let begun = u64::try_from(version * nanos).unwrap_or(u64::MAX);
            let seconds = u64::try_from(clock.wall_at(Duration::from_nanos(begun)));
            UNIX_EPOCH + Duration::from_secs(seconds.unwrap_or(0))
        };
        Resource {
            kind: "application/json",
            content: Content::bytes(text),
            tag,
            is_strong: false,
            modified: version.map(begun),
        }
    }

    /// Reads size, rate and framing from the query, by default a mebibyte without a rate. The bytes
    /// depend only on the size, which is the tag.
    fn history(&self) -> Result<Resource, ParseError> {
        let (mut bytes, mut rate, mut is_chunked) = (1 << 20, None, false);
        for (name, value) in form_urlencoded::parse(self.query.as_bytes()) {
            let wrong = |wanted| ParseError::new("value in the query", &value, wanted);
            let number = || value.parse().map_err(|_| wrong("a number"));
            match (&*name, &*value) {
                ("bytes", _) => bytes = number()?,
                ("rate", _) => rate = Some(number()?),
                ("framing", "chunked") => is_chunked = true,
                ("framing", "length") => is_chunked = false,
                ("framing", _) => return Err(wrong("chunked or length")),
                _ => {}
            }
        }
        Ok(Resource {
            kind: "text/csv; charset=utf-8",
            content: Content {
                source: Source::lines(bytes),
                rate,
                is_chunked,
                coding: None,
            },
            tag: bytes.to_string(),
            is_strong: true,
            modified: None,
        })
    }
}

// === impl Resource ===

impl Resource {
    /// Reads the file for a path of a URL. Returns `None` for files outside of `folder`, including
    /// those reached through links.
    pub(crate) fn file(folder: &Path, path: &str) -> Option<Self> {
        let path = decoded(path)?;
        let relative = Path::new(path.strip_prefix('/')?);
        let is_within = |part| matches!(part, Component::Normal(_));
        let file = folder.join(relative).canonicalize().ok()?;
        if !relative.components().all(is_within) || !file.starts_with(folder.canonicalize().ok()?) {
            return None;
        }
        let bytes = fs::read(&file).ok()?;
        let hash = digest(&SHA256, &bytes);
        let hash = hash.as_ref().iter().take(8);
        let ending = file.extension().and_then(|ending| ending.to_str());
        let kind = KINDS.iter().find(|(known, _)| Some(*known) == ending);
        Some(Self {
            kind: kind.map_or("application/octet-stream", |(_, kind)| kind),
            tag: hash.map(|byte| format!("{byte:02x}")).collect(),
            content: Content::bytes(bytes),
            is_strong: true,
            modified: fs::metadata(&file).and_then(|data| data.modified()).ok(),
        })
    }

    /// Returns a 200 or a 206, or a 304 if the request has the data (RFC 9110, sections 13 and 14).
    pub(crate) fn answer(mut self, headers: &HeaderMap) -> Response<Content> {
        let length = self.content.source.length();
        let range = self.range(headers, length);
        // A range counts the bytes of the data, so the answer to one is not compressed.
        if range.is_none() {
            self.content.coding = Coding::accepted_by(headers);
        }
        let tag = self.tag();
        let mut response = Response::new(self.content);
        let head = response.headers_mut();
        insert(head, header::ETAG, &tag);
        if let Some(modified) = self.modified.map(httpdate::fmt_http_date) {
            insert(head, header::LAST_MODIFIED, &modified);
        }
        if is_current(headers, &tag, self.modified) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            *response.body_mut() = Content {
                // A 304 has no length of its own (RFC 9110, section 8.6).
                is_chunked: true,
                ..Content::bytes("")
            };
            return response;
        }
        insert(head, header::CONTENT_TYPE, self.kind);
        insert(head, header::VARY, "accept-encoding, content-encoding");
        if self.is_strong {
            insert(head, header::ACCEPT_RANGES, "bytes");
        }
        if let Some(Range { start, end }) = range {
            let range = format!("bytes {start}-{}/{length}", end - 1);
            insert(head, header::CONTENT_RANGE, &range);
            let source = response.body().source.slice(start, end - start);
            response.body_mut().source = source;
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        response
    }

    /// Returns the entity tag. A strong tag differs between codings.
    fn tag(&self) -> String {
        let tag = &self.tag;
        match self.content.coding {
            _ if !self.is_strong => format!("W/\"{tag}\""),
            Some(coding) => format!("\"{tag}-{}\"", coding.name()),
            None => format!("\"{tag}\""),
        }
    }

    /// Returns the one range of a request. Several ranges, other units, a range after the end, and an
    /// `If-Range` other than this tag select the whole, as RFC 9110 allows: the service's 416 is for
    /// connections, and its ledger has no other.
    fn range(&self, headers: &HeaderMap, length: u64) -> Option<Range<u64>> {
        let known = headers.get(header::IF_RANGE);
        if !self.is_strong || known.is_some_and(|known| *known != self.tag()) {
            return None;
        }
        let range = headers.get(header::RANGE)?.to_str().ok()?;
        let (first, last) = range.strip_prefix("bytes=")?.trim().split_once('-')?;
        let range = match (first.parse().ok(), last.parse().ok()) {
            (None, Some(from_end)) if first.is_empty() => length.saturating_sub(from_end)..length,
            (Some(first), None) if last.is_empty() => first..length,
            (Some(first), Some(last)) => first..length.min(last.saturating_add(1)),
            _ => return None,
        };
        (range.start < range.end).then_some(range)
    }
}

/// Whether the request has this tag, compared weakly, or if it names none, data of this time.
fn is_current(headers: &HeaderMap, tag: &str, modified: Option<SystemTime>) -> bool {
    let bare = |tag: &str| tag.trim_start_matches("W/").to_owned();
    if headers.contains_key(header::IF_NONE_MATCH) {
        let lists = headers.get_all(header::IF_NONE_MATCH).iter();
        let lists = lists.filter_map(|list| list.to_str().ok());
        let mut tags = lists.flat_map(|list| list.split(',')).map(str::trim);
        return tags.any(|known| known == "*" || bare(known) == bare(tag));
    }
    let since = headers.get(header::IF_MODIFIED_SINCE);
    let since = since.and_then(|since| httpdate::parse_http_date(since.to_str().ok()?).ok());
    // The header has whole seconds.
    let next = since.map(|since| since + Duration::from_secs(1));
    modified
        .zip(next)
        .is_some_and(|(modified, next)| modified < next)
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    headers.extend(HeaderValue::from_str(value).map(|value| (name, value)));
}

/// Decodes the percent signs of a path. Returns `None` if the result is not UTF-8.
fn decoded(path: &str) -> Option<String> {
    let form = format!("v={}", path.replace('+', "%2B").replace('&', "%26"));
    let (_, text) = form_urlencoded::parse(form.as_bytes()).next()?;
    (!text.contains('\u{fffd}')).then(|| text.into_owned())
}

/// Returns a JSON object of `bytes` bytes, at most about 16 MiB. If its fields need more, it is
/// longer.
fn live(name: &str, bytes: u64, version: Option<u128>) -> String {
    let version = version.map(|version| format!("\"version\":{version},"));
    let start = format!(
        "{{\"name\":{},\"status\":\"on time\",{}\"note\":\"",
        serde_json::Value::from(name),
        version.unwrap_or_default()
    );
    let room = usize::try_from(bytes).unwrap_or(usize::MAX);
    let room = room.saturating_sub(start.len() + LIVE_END.len());
    let mut text = start;
    text.extend(std::iter::repeat_n('-', room.min(LIVE_MOST)));
    text.push_str(LIVE_END);
    text
}

const LIVE_END: &str = "\"}\n";

/// Largest filling of a live resource. It is bounded because the resource is built in memory.
const LIVE_MOST: usize = 16 * 1024 * 1024;

/// Media types by the ending of a file.
const KINDS: [(&str, &str); 7] = [
    ("json", "application/json"),
    ("geojson", "application/geo+json"),
    ("csv", "text/csv; charset=utf-8"),
    ("txt", "text/plain; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("xml", "application/xml"),
    ("zip", "application/zip"),
];
