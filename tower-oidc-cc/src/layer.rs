//! The layer: data only.

use std::sync::Arc;

use tower_layer::Layer;

use crate::{
    BearerAuth, BearerReplayLayer, Challenge, Foreign, Origin, TokenSource,
    origin::{Places, Rules},
    service::Bound,
};

/// Puts a bearer token on each request to the listed origins, and refuses all other requests.
///
/// An empty list refuses everything. A request must carry an absolute address, as those of the
/// usual HTTP clients do, for its origin to be known.
///
/// Redirects are to be followed above this layer, where each hop is a request of its own with its
/// own look at the list. A client below that follows them by itself does so unseen.
///
/// # Examples
///
/// See the [crate's front page](crate).
#[derive(Clone, Debug)]
pub struct BearerAuthLayer<J = Challenge> {
    bound: Arc<Bound>,
    judge: J,
}

// === impl BearerAuthLayer ===

impl BearerAuthLayer {
    /// Lets the token of `source` go to `origins` and nowhere else.
    ///
    /// Each request says where it goes, by an absolute address. For clients whose requests carry a
    /// path alone there is [`for_origin`](Self::for_origin).
    #[must_use]
    pub fn new(source: TokenSource, origins: impl IntoIterator<Item = Origin>) -> Self {
        Self::bound(source, Places::Listed(origins.into_iter().collect()))
    }

    /// Lets the token of `source` go to `origin`, which is where requests go that carry a path alone.
    ///
    /// For connections that lead to one place: those of hyper's `client::conn`, and the channels of
    /// tonic's generated clients. An absolute address has to have this origin, and a `Host` header
    /// has to name it.
    #[must_use]
    pub fn for_origin(source: TokenSource, origin: Origin) -> Self {
        Self::bound(source, Places::One(origin))
    }

    /// Lets the token of `source` go wherever the connection below leads.
    ///
    /// Nothing is compared but a `Host` header with an absolute address: use it where the
    /// connection itself was made to one place, over TLS, and follows no redirect.
    #[must_use]
    pub fn any_origin(source: TokenSource) -> Self {
        Self::bound(source, Places::Any)
    }

    fn bound(source: TokenSource, places: Places) -> Self {
        let rules = Rules::new(places);
        Self {
            bound: Arc::new(Bound { source, rules }),
            judge: Challenge,
        }
    }
}

impl<J> BearerAuthLayer<J> {
    /// Replaces what decides that a token is dead; [`Challenge`] by default.
    #[must_use]
    pub fn judge<K>(self, judge: K) -> BearerAuthLayer<K> {
        BearerAuthLayer {
            bound: self.bound,
            judge,
        }
    }

    /// Chooses what becomes of requests to other origins; [`Foreign::Refuse`] by default.
    #[must_use]
    pub fn foreign(mut self, foreign: Foreign) -> Self {
        Arc::make_mut(&mut self.bound).rules.foreign = foreign;
        self
    }

    /// Sends a request once more if its token was refused and there is another.
    ///
    /// Use it where no retry layer outside does that already.
    #[must_use]
    pub fn replay(self) -> BearerReplayLayer<J> {
        BearerReplayLayer::new(self)
    }
}

impl<S, J: Clone> Layer<S> for BearerAuthLayer<J> {
    type Service = BearerAuth<S, J>;

    fn layer(&self, inner: S) -> Self::Service {
        BearerAuth::new(inner, Arc::clone(&self.bound), self.judge.clone())
    }
}
