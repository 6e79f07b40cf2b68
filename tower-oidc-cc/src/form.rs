//! A form in memory that is wiped when the HTTP client is done with it.

use bytes::Bytes;
use form_urlencoded::byte_serialize;
use zeroize::Zeroizing;

/// Collects fields as `application/x-www-form-urlencoded`.
#[derive(Default)]
pub(crate) struct Form {
    text: Zeroizing<String>,
}

// === impl Form ===

impl Form {
    pub(crate) fn append(&mut self, name: &str, value: &str) {
        self.make_room(name.len().saturating_add(value.len()));
        if !self.text.is_empty() {
            self.text.push('&');
        }
        self.text.extend(byte_serialize(name.as_bytes()));
        self.text.push('=');
        self.text.extend(byte_serialize(value.as_bytes()));
    }

    pub(crate) fn into_bytes(mut self) -> Bytes {
        let text = std::mem::take(&mut *self.text);
        Bytes::from_owner(Zeroizing::new(text.into_bytes()))
    }

    /// Makes room for a field of so many bytes. A buffer that grows by itself would leave a copy
    /// of the secret behind; this one wipes what it outgrows.
    fn make_room(&mut self, bytes: usize) {
        // One byte becomes three at most, and there are two signs.
        let room = bytes.saturating_mul(3).saturating_add(2);
        if room <= self.text.capacity().saturating_sub(self.text.len()) {
            return;
        }
        let room = self.text.len().saturating_add(room).saturating_mul(2);
        let mut grown = Zeroizing::new(String::with_capacity(room));
        grown.push_str(&self.text);
        self.text = grown;
    }
}
