//! The layer: data only.

use tower_layer::Layer;

use crate::{BearerAuthLayer, BearerReplay, Challenge};

/// Puts a bearer token on each request, and sends it once more if the token was refused as dead.
///
/// Made by [`BearerAuthLayer::replay`]. It keeps a copy of each request that it may send again, so
/// bodies must be `Clone`: a `Full<Bytes>` or an `Empty` is, and cheaply so.
///
/// # Examples
///
/// See [`BearerReplay`].
#[derive(Clone, Debug)]
pub struct BearerReplayLayer<J = Challenge> {
    token: BearerAuthLayer<J>,
    methods: Methods,
}

/// Which requests may be sent twice.
#[derive(Clone, Copy, Debug)]
pub(super) enum Methods {
    Idempotent,
    All,
}

// === impl BearerReplayLayer ===

impl<J> BearerReplayLayer<J> {
    pub(crate) fn new(token: BearerAuthLayer<J>) -> Self {
        Self {
            token,
            methods: Methods::Idempotent,
        }
    }

    /// Replays all methods, `POST` and `PATCH` too; only idempotent ones by default (RFC 9110,
    /// section 9.2.2).
    ///
    /// A 401 says that the request was not carried out. This is for those who take the service's
    /// word for it.
    #[must_use]
    pub fn all_methods(self) -> Self {
        Self {
            methods: Methods::All,
            ..self
        }
    }
}

impl<S, J: Clone> Layer<S> for BearerReplayLayer<J> {
    type Service = BearerReplay<S, J>;

    fn layer(&self, inner: S) -> Self::Service {
        BearerReplay::new(self.token.layer(inner), self.methods)
    }
}
