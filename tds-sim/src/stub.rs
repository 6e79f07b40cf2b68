//! Answers that a test sets for a path.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};

use crate::text::Pattern;

/// Stubs of all calls. The last one that matches a call answers.
pub(crate) type Stubs = Vec<(Calls, Arc<Stub>)>;

/// Calls that a stub answers. Without a method or a query, any matches.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Calls {
    pub(crate) path: Pattern,
    pub(crate) method: Option<Method>,
    /// Decoded pairs, sorted.
    pub(crate) query: Option<Vec<(String, String)>>,
}

/// Answer of a stubbed path.
#[derive(Debug)]
pub(crate) struct Stub {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) delay: Duration,
}

// === impl Calls ===

impl Calls {
    pub(crate) fn have(&self, method: &Method, uri: &Uri) -> bool {
        let query = || pairs(uri.query().unwrap_or_default());
        self.path.matches(uri.path())
            && self.method.as_ref().is_none_or(|it| it == method)
            && self.query.as_ref().is_none_or(|it| *it == query())
    }
}

/// Returns the decoded pairs of a query, sorted, because their order means nothing.
pub(crate) fn pairs(query: &str) -> Vec<(String, String)> {
    let query = query.strip_prefix('?').unwrap_or(query).as_bytes();
    let mut pairs: Vec<_> = form_urlencoded::parse(query).into_owned().collect();
    pairs.sort();
    pairs
}
