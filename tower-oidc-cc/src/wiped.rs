//! A buffer for what must not be left behind in memory.

use std::io;
#[cfg(feature = "private-key-jwt")]
use std::mem;

use bytes::Bytes;
use zeroize::Zeroizing;

#[cfg(test)]
mod tests;

/// Bytes that are wiped when they are dropped, and when their buffer is outgrown: a vector that
/// grows by itself leaves a copy behind.
#[derive(Default)]
pub(crate) struct Wiped {
    bytes: Zeroizing<Vec<u8>>,
}

// === impl Wiped ===

impl Wiped {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self {
            bytes: Zeroizing::new(Vec::with_capacity(capacity)),
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// `None` if it is no text.
    #[cfg(feature = "private-key-jwt")]
    pub(crate) fn into_string(mut self) -> Option<Zeroizing<String>> {
        // Text that is none comes back in the error, and is wiped with it.
        match String::from_utf8(mem::take(&mut *self.bytes)) {
            Ok(text) => Some(Zeroizing::new(text)),
            Err(error) => {
                self.bytes = Zeroizing::new(error.into_bytes());
                None
            }
        }
    }

    pub(crate) fn into_vec(self) -> Zeroizing<Vec<u8>> {
        self.bytes
    }

    /// They are wiped with the last copy of what this returns.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self.bytes)
    }

    fn make_room(&mut self, more: usize) {
        if more <= self.bytes.capacity() - self.bytes.len() {
            return;
        }
        let room = (self.bytes.len() + more) * 2;
        let mut grown = Zeroizing::new(Vec::with_capacity(room));
        grown.extend_from_slice(&self.bytes);
        self.bytes = grown;
    }
}

impl io::Write for Wiped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
