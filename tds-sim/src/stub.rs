//! Answers that a test sets for a path.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::text::Pattern;

/// Stubs of all paths. The last one that matches a path answers.
pub(crate) type Stubs = Vec<(Pattern, Arc<Stub>)>;

/// Answer of a stubbed path.
#[derive(Debug)]
pub(crate) struct Stub {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) delay: Duration,
}
