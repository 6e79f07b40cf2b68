//! The content coding of an answer, and the encoders.

use async_compression::tokio::bufread::{BrotliEncoder, GzipEncoder};
use http::{
    HeaderMap, HeaderValue,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING},
};

use crate::body::{Pieces, Source};

/// A coding of the contract's request header `Content-Encoding: br,gzip`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Brotli,
    Gzip,
}

// === impl Coding ===

impl Coding {
    /// The coding a request asks for: in the contract's own header, or in the standard one.
    ///
    /// Brotli is preferred, whatever the order or the weights, but for a weight of zero.
    pub(crate) fn asked_by(headers: &HeaderMap) -> Option<Self> {
        let asked = |coding: &str| {
            [CONTENT_ENCODING, ACCEPT_ENCODING]
                .iter()
                .flat_map(|name| headers.get_all(name))
                .filter_map(|value| value.to_str().ok())
                .flat_map(|value| value.split(','))
                .any(|item| names(item, coding))
        };
        if asked("br") {
            Some(Self::Brotli)
        } else if asked("gzip") {
            Some(Self::Gzip)
        } else {
            None
        }
    }

    /// The value of the answer's `Content-Encoding`.
    pub(crate) const fn value(self) -> HeaderValue {
        match self {
            Self::Brotli => HeaderValue::from_static("br"),
            Self::Gzip => HeaderValue::from_static("gzip"),
        }
    }

    /// Encodes as it is read, in the encoder's own memory whatever the length.
    pub(crate) fn encode(self, source: Source) -> Pieces {
        // The fastest level: an answer's transfer is simulated here, not the gateway's effort.
        let level = async_compression::Level::Fastest;
        match self {
            Self::Brotli => Pieces::of(BrotliEncoder::with_quality(source, level)),
            Self::Gzip => Pieces::of(GzipEncoder::with_quality(source, level)),
        }
    }
}

/// Whether `item` of a list, such as `gzip;q=0.5`, asks for `coding`.
fn names(item: &str, coding: &str) -> bool {
    let (name, weight) = item.split_once(';').unwrap_or((item, ""));
    let refused = weight
        .trim()
        .strip_prefix("q=")
        .and_then(|weight| weight.trim().parse::<f32>().ok())
        .is_some_and(|weight| weight <= 0.0);
    name.trim().eq_ignore_ascii_case(coding) && !refused
}

#[cfg(test)]
mod tests;
