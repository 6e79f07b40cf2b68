//! Requests as a program makes them.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};
use http_body_util::Full;

/// Makes requests from a kept URI and headers, as programs do. Every figure includes the cost of
/// making a request, that of the bare service as well.
#[derive(Debug)]
pub struct Made {
    uri: Uri,
    headers: HeaderMap,
}

// === impl Made ===

impl Made {
    /// Makes requests without headers.
    #[must_use]
    pub fn plain() -> Self {
        Self {
            uri: Uri::from_static("https://data.example.org/v1/live/bus"),
            headers: HeaderMap::new(),
        }
    }

    /// Makes requests with three headers.
    #[must_use]
    pub fn with_headers() -> Self {
        let headers = [
            ("accept", "application/json"),
            ("content-encoding", "br,gzip"),
            ("x-trace", "0af7651916cd43dd8448eb211c80319c"),
        ];
        let headers = headers.map(|(name, value)| {
            let value = HeaderValue::from_static(value);
            (HeaderName::from_static(name), value)
        });
        Self {
            headers: headers.into_iter().collect(),
            ..Self::plain()
        }
    }

    /// Makes a request.
    #[must_use]
    pub fn request(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}
