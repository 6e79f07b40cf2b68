//! What of a request changes the meaning of its answer.

use http::header::{ACCEPT, RANGE, UPGRADE};
use http::{HeaderMap, HeaderName};

/// What of a request changes the meaning of its answer: nothing by default.
///
/// A 416 means something else where a `Range` was asked for, a 423 where a lock was held, a page
/// where only data is accepted, and a 101 where no `Upgrade` was asked for. Take it before the request is given
/// away, for [`classify`](crate::classify).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// A part of the resource, so that a 416 may be about it.
    pub(super) part: bool,
    /// What holds a lock, so that a 423 is about it.
    pub(super) lock: bool,
    /// Data, so that a page is not what was asked for.
    pub(super) data: bool,
    /// Another protocol, so that a 101 is the way there.
    pub(super) upgrade: bool,
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

/// RFC 4918, section 10.5.
const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");
