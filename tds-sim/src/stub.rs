//! Answers that a test sets for a path.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::text::Pattern;

/// The answer of a stubbed path.
#[derive(Debug)]
pub(crate) struct Stub {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) delay: Duration,
}

/// All stubs, the newest first.
#[derive(Debug, Default)]
pub(crate) struct Stubs(VecDeque<(Pattern, Arc<Stub>)>);

// === impl Stubs ===

impl Stubs {
    /// Sets the answer of a path.
    pub(crate) fn put(&mut self, path: Pattern, stub: Stub) {
        self.remove(&path);
        self.0.push_front((path, Arc::new(stub)));
    }

    /// Removes the stub that was put for exactly this path. Returns whether there was one.
    pub(crate) fn remove(&mut self, path: &Pattern) -> bool {
        let before = self.0.len();
        self.0.retain(|(known, _)| known != path);
        self.0.len() < before
    }

    /// Returns the newest stub for `path`.
    pub(crate) fn at(&self, path: &str) -> Option<Arc<Stub>> {
        let mut stubs = self.0.iter();
        stubs
            .find(|(pattern, _)| pattern.matches(path))
            .map(|(_, stub)| Arc::clone(stub))
    }
}
