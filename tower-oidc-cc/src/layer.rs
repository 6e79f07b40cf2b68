//! The layer: data only.

use std::sync::Arc;

use tower_layer::Layer;

use crate::{
    BearerAuth, BearerReplayLayer, Challenge, Existing, Foreign, Origin, TokenSource, rules::Rules,
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
    tokens: TokenSource,
    rules: Arc<Rules>,
    judge: J,
}

// === impl BearerAuthLayer ===

impl BearerAuthLayer {
    /// Lets the token of `tokens` go to `origins` and nowhere else.
    #[must_use]
    pub fn new(tokens: TokenSource, origins: impl IntoIterator<Item = Origin>) -> Self {
        let rules = Rules {
            origins: origins.into_iter().collect(),
            foreign: Foreign::default(),
            existing: Existing::default(),
        };
        Self {
            tokens,
            rules: Arc::new(rules),
            judge: Challenge,
        }
    }
}

impl<J> BearerAuthLayer<J> {
    /// Replaces what decides that a token is dead; [`Challenge`] by default.
    #[must_use]
    pub fn judge<K>(self, judge: K) -> BearerAuthLayer<K> {
        BearerAuthLayer {
            tokens: self.tokens,
            rules: self.rules,
            judge,
        }
    }

    /// Chooses what becomes of requests to other origins; [`Foreign::Refuse`] by default.
    #[must_use]
    pub fn foreign(mut self, foreign: Foreign) -> Self {
        Arc::make_mut(&mut self.rules).foreign = foreign;
        self
    }

    /// Chooses what becomes of a header that is there already; [`Existing::Replace`] by default.
    #[must_use]
    pub fn existing(mut self, existing: Existing) -> Self {
        Arc::make_mut(&mut self.rules).existing = existing;
        self
    }

    /// Sends a request once more, with a new token, if the first one was refused as dead.
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
        BearerAuth::new(
            inner,
            self.tokens.clone(),
            Arc::clone(&self.rules),
            self.judge.clone(),
        )
    }
}
