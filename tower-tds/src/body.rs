//! The body of a response: watched, decoded, and counted as in flight.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tower_http::decompression::DecompressionBody;
use tower_tds_errors::{Error, GuardBody};
use tower_tds_limits::{PermitBody, TrackBody};

/// What the layers make of the body that hyper reads.
pub(crate) type Layered = PermitBody<DecompressionBody<GuardBody<TrackBody<Incoming>>>>;

pin_project! {
    /// The body of a response, decoded. Its request counts as in flight until its end or its drop.
    ///
    /// # Errors
    /// One that breaks off is no body: what came of it is not to be used. The error has
    /// [`received`](Error::received), and [`expected`](Error::expected) where the service announced
    /// a length, both as they were on the wire.
    /// - [`Kind::Truncated`](crate::Kind::Truncated): it ended early, or nothing came for as long as
    ///   [`Builder::guard`](crate::Builder::guard) allows, 30 s by default. Fetch it again.
    /// - [`Kind::Timeout`](crate::Kind::Timeout): it had not ended at a deadline for the whole.
    /// - [`Kind::Malformed`](crate::Kind::Malformed): it is not in the coding that it declares.
    pub struct ResponseBody {
        #[pin]
        inner: Layered,
    }
}

// === impl ResponseBody ===

impl ResponseBody {
    pub(crate) fn new(inner: Layered) -> Self {
        Self { inner }
    }

    /// Whether its end will say that it is whole: not if it ends with its connection alone, without
    /// length and chunks. One that broke off looks the same then.
    #[must_use]
    pub fn is_verifiable(&self) -> bool {
        self.inner.get_ref().get_ref().is_verifiable()
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        // The decoder boxes what the guard below it said.
        self.project().inner.poll_frame(cx).map_err(Error::from)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody")
            .field("verifiable", &self.is_verifiable())
            .finish_non_exhaustive()
    }
}
