//! The properties of a request that change the meaning of its response.

use http::header::{ACCEPT, RANGE, UPGRADE};
use http::{HeaderMap, HeaderName};

/// The properties of a request that change the meaning of its response. None by default.
///
/// A 416 depends on `Range`, a 423 on a lock, a page on `Accept`, and a 101 on `Upgrade`. Create it
/// before the request is sent, for [`classify`](crate::classify).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Whether the request has a `Range`, which a 416 may refuse.
    pub(super) part: bool,
    /// Whether the request holds a lock, which a 423 may refer to.
    pub(super) lock: bool,
    /// Whether the request accepts data only, so that a page is an error.
    pub(super) data: bool,
    /// Whether the request has an `Upgrade`, so that a 101 is a success.
    pub(super) upgrade: bool,
}

// === impl Asked ===

impl Asked {
    /// Reads the headers of a request.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        // One pass over the few headers of a request is cheaper than several look-ups, which hash.
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

/// Whether only JSON or XML is accepted.
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
