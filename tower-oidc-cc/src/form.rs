//! A form in memory that is wiped when the HTTP client is done with it.

use bytes::Bytes;
use form_urlencoded::byte_serialize;

use crate::wiped::Wiped;

/// Collects fields as `application/x-www-form-urlencoded`.
#[derive(Default)]
pub(crate) struct Form {
    text: Wiped,
}

// === impl Form ===

impl Form {
    pub(crate) fn append(&mut self, name: &str, value: &str) {
        if !self.text.as_slice().is_empty() {
            self.text.push(b"&");
        }
        self.put(name);
        self.text.push(b"=");
        self.put(value);
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.text.into_bytes()
    }

    fn put(&mut self, text: &str) {
        for piece in byte_serialize(text.as_bytes()) {
            self.text.push(piece.as_bytes());
        }
    }
}
