//! Resources. The contract states only that some are historical and some are not.

use http::{
    HeaderMap, HeaderValue, Response, StatusCode, Uri,
    header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY},
};

use crate::{
    body::{Coding, Content, Source},
    config::{Config, Framing},
};

/// A data endpoint, with the query.
#[derive(Debug)]
pub(super) struct Resource<'a> {
    group: Group,
    name: &'a str,
    query: &'a str,
}

#[derive(Debug, Clone, Copy)]
enum Group {
    /// `/v1/live/{name}`: a small JSON object.
    Live,
    /// `/v1/history/{name}`: lines of text, as many bytes as requested.
    History,
}

// === impl Resource ===

impl<'a> Resource<'a> {
    /// The resource at `uri`, if there is one.
    pub(super) fn at(uri: &'a Uri) -> Option<Self> {
        let (group, name) = uri.path().strip_prefix("/v1/")?.split_once('/')?;
        let group = match group {
            "live" => Group::Live,
            "history" => Group::History,
            _ => return None,
        };
        let known = !name.is_empty() && !name.contains('/');
        known.then(|| Self {
            group,
            name,
            query: uri.query().unwrap_or_default(),
        })
    }

    /// The realm role it requires.
    pub(super) const fn role(&self) -> &'static str {
        match self.group {
            Group::Live => "live",
            Group::History => "history",
        }
    }

    /// The answer with 200, or with 304 if the request has the entity tag of the data (RFC 9110, 13.1.2).
    ///
    /// The data of a resource depend on their size alone, so the size is the tag.
    pub(super) fn answer(&self, config: &Config, headers: &HeaderMap) -> Response<Content> {
        let (kind, mut content) = match self.group {
            Group::Live => {
                let text = live(self.name, config.live_bytes);
                ("application/json", Content::bytes(text))
            }
            Group::History => ("text/csv; charset=utf-8", self.history(config)),
        };
        let tag = format!("W/\"{}\"", content.source.length());
        if is_current(headers, &tag) {
            let mut response = Response::new(Content {
                // A 304 has no length of its own (RFC 9110, 8.6).
                framing: Framing::Chunked,
                ..Content::bytes("")
            });
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            insert_tag(response.headers_mut(), &tag);
            return response;
        }
        content.coding = Coding::asked_by(headers);
        let mut response = Response::new(content);
        let headers = response.headers_mut();
        insert_tag(headers, &tag);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        let vary = HeaderValue::from_static("accept-encoding, content-encoding");
        headers.insert(VARY, vary);
        response
    }

    /// Settings of the query, or else of the configuration.
    fn history(&self, config: &Config) -> Content {
        let mut bytes = config.history_bytes;
        let (mut rate, mut framing) = (config.history_rate, config.history_framing);
        for (name, value) in form_urlencoded::parse(self.query.as_bytes()) {
            match (&*name, &*value) {
                ("bytes", value) => bytes = value.parse().unwrap_or(bytes),
                ("rate", value) => rate = value.parse().ok().or(rate),
                ("framing", "chunked") => framing = Framing::Chunked,
                ("framing", "length") => framing = Framing::Length,
                _ => {}
            }
        }
        Content {
            source: Source::lines(bytes),
            rate,
            framing,
            coding: None,
        }
    }
}

/// Whether `If-None-Match` has this weak tag, in either form.
fn is_current(headers: &HeaderMap, tag: &str) -> bool {
    let lists = headers.get_all(IF_NONE_MATCH).iter();
    let mut tags = lists
        .filter_map(|list| list.to_str().ok())
        .flat_map(|list| list.split(','))
        .map(str::trim);
    tags.any(|known| known == "*" || known == tag || Some(known) == tag.strip_prefix("W/"))
}

fn insert_tag(headers: &mut HeaderMap, tag: &str) {
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(ETAG, tag);
    }
}

/// A JSON object of `bytes` bytes, or a few more if it does not fit.
fn live(name: &str, bytes: u64) -> String {
    let start = format!(
        "{{\"name\":{},\"status\":\"on time\",\"note\":\"",
        serde_json::Value::from(name)
    );
    let room = usize::try_from(bytes).unwrap_or(usize::MAX);
    let room = room
        .saturating_sub(start.len())
        .saturating_sub(LIVE_END.len());
    let mut text = start;
    text.extend(std::iter::repeat_n('-', room.min(LIVE_MOST)));
    text.push_str(LIVE_END);
    text
}

const LIVE_END: &str = "\"}\n";

/// Live resources are made whole, so they have an end.
const LIVE_MOST: usize = 16 * 1024 * 1024;
