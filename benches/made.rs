//! Requests with the headers that a program sets itself.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};
use http_body_util::Full;

/// Makes requests whose parts are shared, as those of a program that keeps them are. What making one
/// costs is in every figure, the bare service's too.
#[derive(Debug)]
pub struct Made {
    uri: Uri,
    headers: HeaderMap,
}

// === impl Made ===

impl Made {
    /// Without headers.
    #[must_use]
    pub fn plain() -> Self {
        Self {
            uri: Uri::from_static("https://data.example.org/v1/live/bus"),
            headers: HeaderMap::new(),
        }
    }

    /// With three of them.
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

    /// One more.
    #[must_use]
    pub fn request(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}
