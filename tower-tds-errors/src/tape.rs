//! The head of a request that was given away, in a buffer that is used again and again.

use http::{HeaderMap, Method, Request, Uri};

use self::record::Record;

mod pool;
mod record;

/// What a retry, and the text of an error, need of a request that was given away.
///
/// Bytes, where clones would be simpler: that of a `Uri` counts two references up and down again,
/// and that of a `HeaderMap` allocates twice, and once more for each value that nobody has cloned
/// before. This costs one copy of a few hundred bytes, and no allocation once the thread has a spare
/// record. It is one word, since the services' futures are moved.
pub(crate) struct Tape {
    /// There until the drop.
    record: Option<Box<Record>>,
}

// === impl Tape ===

impl Tape {
    /// Writes down what a request asks for, without headers.
    pub(crate) fn of(method: &Method, uri: &Uri) -> Self {
        let mut record = pool::take();
        record.write(method, uri);
        Self {
            record: Some(record),
        }
    }

    /// Adds headers.
    #[inline]
    pub(crate) fn add(&mut self, headers: &HeaderMap) {
        if let Some(record) = &mut self.record
            && !headers.is_empty()
        {
            record.add(headers);
        }
    }

    pub(crate) fn method(&self) -> &Method {
        let record = self.record.as_ref();
        record.map_or(&Method::GET, |record| &record.method)
    }

    /// Scheme, authority and path, of which the first two may be empty.
    pub(crate) fn parts(&self) -> [&str; 3] {
        let parts = self.record.as_ref().and_then(|record| record.parts());
        parts.unwrap_or_default()
    }

    /// The request that was written, if it was a valid one.
    pub(crate) fn request<B>(&self, body: B) -> Option<Request<B>> {
        let record = self.record.as_ref()?;
        let mut request = Request::new(body);
        *request.method_mut() = record.method.clone();
        *request.uri_mut() = record.uri()?;
        *request.headers_mut() = record.headers()?;
        Some(request)
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            pool::give(record);
        }
    }
}

#[cfg(test)]
mod tests;
