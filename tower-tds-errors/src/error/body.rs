//! What was read of an answer's body.

use std::fmt;

use bytes::Bytes;

/// Bytes that nobody prints by accident: a service may have echoed a secret in them.
#[derive(Clone, Default)]
pub(crate) struct Body {
    pub(crate) bytes: Bytes,
    /// Whether there was more than was read.
    pub(crate) cut: bool,
}

// === impl Body ===

impl Body {
    /// Keeps as much as is read of the wire at most: an error may be held through a long wait.
    pub(crate) fn new(bytes: &[u8], most: usize) -> Self {
        let kept = bytes.get(..most).unwrap_or(bytes);
        Self {
            bytes: Bytes::copy_from_slice(kept),
            cut: kept.len() < bytes.len(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = if self.cut { ", cut" } else { "" };
        write!(f, "{} bytes{cut}", self.bytes.len())
    }
}
