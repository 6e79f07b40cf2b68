//! Resources. The contract states only that some are historical and some are not.

use http::{
    HeaderMap, HeaderValue, Response, Uri,
    header::{CONTENT_TYPE, VARY},
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

    /// The answer with 200.
    pub(super) fn answer(&self, config: &Config, headers: &HeaderMap) -> Response<Content> {
        let (kind, mut content) = match self.group {
            Group::Live => {
                let text = live(self.name, config.live_bytes);
                ("application/json", Content::bytes(text))
            }
            Group::History => ("text/csv; charset=utf-8", self.history(config)),
        };
        content.coding = Coding::asked_by(headers);
        let mut response = Response::new(content);
        let headers = response.headers_mut();
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
