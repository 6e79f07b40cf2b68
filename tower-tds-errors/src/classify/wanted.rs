//! What of the request changes the meaning of its answer.

use http::HeaderMap;
use http::header::{ACCEPT, HeaderName, RANGE};

/// Noted before the request is sent. Three look-ups, and nothing kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// A part of the resource, so that a 416 may be about it.
    pub(super) part: bool,
    /// What holds a lock, so that a 423 is about it.
    pub(super) lock: bool,
    /// Data, so that a page is not what was asked for.
    pub(super) data: bool,
}

// === impl Wanted ===

impl Wanted {
    pub(crate) const NOTHING: Self = Self {
        part: false,
        lock: false,
        data: false,
    };

    pub(crate) fn of(headers: &HeaderMap) -> Self {
        if headers.is_empty() {
            return Self::NOTHING;
        }
        Self {
            part: headers.contains_key(RANGE),
            lock: headers.contains_key(LOCK_TOKEN),
            data: headers.contains_key(ACCEPT) && is_data(headers),
        }
    }
}

/// Whether all that is accepted is JSON or XML.
fn is_data(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).iter();
    let mut ranges = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    ranges.all(|range| {
        let kind = range.split(|byte| *byte == b';').next().unwrap_or_default();
        let ends = |name: &[u8]| ends(kind.trim_ascii(), name);
        (ends(b"json") || ends(b"xml")) && !ends(b"html+xml")
    })
}

fn ends(text: &[u8], name: &[u8]) -> bool {
    let start = text.len().checked_sub(name.len());
    let end = start.and_then(|start| text.get(start..));
    end.is_some_and(|end| end.eq_ignore_ascii_case(name))
}

/// RFC 4918, section 10.5.
const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");
