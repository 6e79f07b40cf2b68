//! The resources, of which the contract says only that some are historical and some are not.

use http::{
    HeaderMap, HeaderValue, Response, Uri,
    header::{CONTENT_TYPE, VARY},
};

use crate::{
    body::Content,
    config::{Config, Framing},
    encoding::Coding,
};

/// A data endpoint with what its query asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Resource {
    /// `/v1/live/{name}`: a small JSON object.
    Live { name: String },
    /// `/v1/history/{name}`: lines of text, as many bytes as asked for.
    History {
        bytes: Option<u64>,
        rate: Option<u64>,
        framing: Option<Framing>,
    },
}

// === impl Resource ===

impl Resource {
    /// The resource at `uri`, if there is one.
    pub(super) fn at(uri: &Uri) -> Option<Self> {
        let (group, name) = uri.path().strip_prefix("/v1/")?.split_once('/')?;
        let name = Some(name).filter(|name| !name.is_empty() && !name.contains('/'))?;
        match group {
            "live" => Some(Self::Live {
                name: name.to_owned(),
            }),
            "history" => Some(Self::history(uri.query().unwrap_or_default())),
            _ => None,
        }
    }

    /// The realm role it requires.
    pub(super) const fn role(&self) -> &'static str {
        match self {
            Self::Live { .. } => "live",
            Self::History { .. } => "history",
        }
    }

    /// The answer with 200.
    pub(super) fn answer(&self, config: &Config, headers: &HeaderMap) -> Response<Content> {
        let (kind, content) = match self {
            Self::Live { name } => (
                "application/json",
                Content::bytes(live(name, config.live_bytes)),
            ),
            Self::History {
                bytes,
                rate,
                framing,
            } => (
                "text/csv; charset=utf-8",
                Content::lines(bytes.unwrap_or(config.history_bytes))
                    .at_rate(rate.or(config.history_rate))
                    .framed(framing.unwrap_or(config.history_framing)),
            ),
        };
        let mut response = Response::new(content.encoded(Coding::asked_by(headers)));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(
            VARY,
            HeaderValue::from_static("accept-encoding, content-encoding"),
        );
        response
    }

    fn history(query: &str) -> Self {
        let (mut bytes, mut rate, mut framing) = (None, None, None);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "bytes" => bytes = value.parse().ok(),
                "rate" => rate = value.parse().ok(),
                "framing" if value == "chunked" => framing = Some(Framing::Chunked),
                "framing" if value == "length" => framing = Some(Framing::Length),
                _ => {}
            }
        }
        Self::History {
            bytes,
            rate,
            framing,
        }
    }
}

/// A JSON object of `bytes` bytes, or a few more if it does not fit.
fn live(name: &str, bytes: u64) -> String {
    // What of a name would need escaping cannot stand in a path.
    let start = format!("{{\"name\":\"{name}\",\"status\":\"on time\",\"note\":\"");
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
