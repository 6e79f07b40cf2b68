//! Headers as bytes, in a buffer that is used again and again.

use http::{HeaderMap, HeaderName, HeaderValue};

mod pool;

/// What a retry needs of the headers of a request that was given away.
///
/// Bytes, where a clone would be simpler: that of a `HeaderMap` allocates twice, and once more for
/// each value that nobody has cloned before. This costs one copy of a few hundred bytes, and no
/// allocation once the thread has a spare buffer.
#[derive(Default)]
pub(crate) struct Tape {
    bytes: Vec<u8>,
}

// === impl Tape ===

impl Tape {
    /// Writes the headers down; `None` says that one of them is too long for it.
    #[inline]
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        if headers.is_empty() {
            return Some(Self::default());
        }
        Self::write(headers)
    }

    fn write(headers: &HeaderMap) -> Option<Self> {
        let mut tape = Self {
            bytes: pool::take(),
        };
        let bytes = &mut tape.bytes;
        for (name, value) in headers {
            let name = name.as_str().as_bytes();
            // RFC 9110 has no bound; `http` has 64 KiB for names, and none for values.
            let (length, wide) = (u16::try_from(name.len()), u32::try_from(value.len()));
            let ([a, b], [c, d, e, f]) = (length.ok()?.to_le_bytes(), wide.ok()?.to_le_bytes());
            let sensitive = u8::from(value.is_sensitive());
            bytes.extend_from_slice(&[a, b, c, d, e, f, sensitive]);
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(value.as_bytes());
        }
        Some(tape)
    }

    /// The headers that were written, if they were valid ones.
    pub(crate) fn headers(&self) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        let mut rest = &*self.bytes;
        while let Some((&[a, b, c, d, e, f, sensitive], after)) = rest.split_first_chunk() {
            let name = usize::from(u16::from_le_bytes([a, b]));
            let value = usize::try_from(u32::from_le_bytes([c, d, e, f])).ok()?;
            let (name, after) = after.split_at_checked(name)?;
            let (value, after) = after.split_at_checked(value)?;
            let mut value = HeaderValue::from_bytes(value).ok()?;
            value.set_sensitive(sensitive == 1);
            headers.append(HeaderName::from_bytes(name).ok()?, value);
            rest = after;
        }
        Some(headers)
    }
}

impl Drop for Tape {
    #[inline]
    fn drop(&mut self) {
        if self.bytes.capacity() > 0 {
            pool::give(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests;
