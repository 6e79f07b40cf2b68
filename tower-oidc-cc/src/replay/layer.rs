//! The layer: data only.

use tower_layer::Layer;

use crate::{Challenge, Replay, TokenLayer};

/// Puts a bearer token on each request, and sends it once more if the token was refused as dead.
///
/// Made by [`TokenLayer::replay`]. It keeps a copy of each request that it may send again, so
/// bodies must be `Clone`: a `Full<Bytes>` or an `Empty` is, and cheaply so.
///
/// # Examples
///
/// See [`Replay`].
#[derive(Clone, Debug)]
pub struct ReplayLayer<J = Challenge> {
    token: TokenLayer<J>,
    methods: Methods,
}

/// Which requests may be sent twice.
#[derive(Clone, Copy, Debug)]
pub(super) enum Methods {
    Idempotent,
    All,
}

// === impl ReplayLayer ===

impl<J> ReplayLayer<J> {
    pub(crate) fn new(token: TokenLayer<J>) -> Self {
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

impl<S, J: Clone> Layer<S> for ReplayLayer<J> {
    type Service = Replay<S, J>;

    fn layer(&self, inner: S) -> Self::Service {
        Replay::new(self.token.layer(inner), self.methods)
    }
}
