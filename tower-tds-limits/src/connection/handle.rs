//! The handle to a socket that rides in the extensions of each response on it.
//!
//! hyper keeps to itself whether a connection is idle, and under TLS bytes do not tell. By the
//! handle the request layer says when an answer has ended.

use http::{Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;

use crate::connection::{
    permit::Place,
    usage::{Head, Mark, Usage},
};

/// A socket as its owner and its answers know it: what [`Connected`] carries as an extra.
///
/// [`Connected`]: hyper_util::client::legacy::connect::Connected
#[derive(Debug)]
pub(crate) struct Handle {
    place: Place,
    /// How far the writing was when the pool took it out for a response, before it could give the
    /// socket to another request; `None` in the pool's own.
    mark: Option<Mark>,
}

/// An answer on a socket, from its head on. Kept for its drop, which says that the body has ended.
#[derive(Debug)]
pub(crate) struct Exchange {
    handle: Handle,
}

// === impl Handle ===

impl Handle {
    /// The pool's own.
    pub(super) fn of(place: Place) -> Self {
        Self { place, mark: None }
    }
}

/// A clone of the pool's own is one request's.
impl Clone for Handle {
    fn clone(&self) -> Self {
        Self {
            place: self.place.clone(),
            mark: self.mark.or_else(|| self.place.told(Usage::written)),
        }
    }
}

// === impl Exchange ===

impl Exchange {
    /// The answer whose head this is, if its socket is limited and nobody has told it before.
    #[inline]
    pub(crate) fn begin<B>(response: &mut Response<B>) -> Option<Self> {
        // Nearly always an empty map where there is no such socket.
        response.extensions().get::<Handle>()?;
        Self::begun(response)
    }

    fn begun<B>(response: &mut Response<B>) -> Option<Self> {
        let handle = response.extensions_mut().remove::<Handle>()?;
        let head = Head {
            status: response.status(),
            opaque: response.version() == Version::HTTP_2
                || response.status() == StatusCode::SWITCHING_PROTOCOLS
                || response.extensions().get::<OnUpgrade>().is_some(),
        };
        handle.place.answered(head, handle.mark);
        Some(Self { handle })
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.handle.place.ended();
    }
}

#[cfg(test)]
mod tests;
