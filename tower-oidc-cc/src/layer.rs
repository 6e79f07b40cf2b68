//! The layer: data only.

use std::sync::Arc;

use tower_layer::Layer;

use crate::{Challenge, Origin, Token, Tokens};

/// Puts a bearer token on each request to the listed origins, and refuses all other requests.
///
/// An empty list refuses everything. A request must carry an absolute address, as those of the
/// usual HTTP clients do, for its origin to be known.
///
/// # Examples
///
/// See the [crate's front page](crate).
#[derive(Clone, Debug)]
pub struct TokenLayer<J = Challenge> {
    tokens: Tokens,
    origins: Arc<[Origin]>,
    judge: J,
}

// === impl TokenLayer ===

impl TokenLayer {
    /// Lets the token of `tokens` go to `origins` and nowhere else.
    #[must_use]
    pub fn new(tokens: Tokens, origins: impl IntoIterator<Item = Origin>) -> Self {
        Self {
            tokens,
            origins: origins.into_iter().collect(),
            judge: Challenge,
        }
    }
}

impl<J> TokenLayer<J> {
    /// Replaces what decides that a token is dead; [`Challenge`] by default.
    #[must_use]
    pub fn judge<K>(self, judge: K) -> TokenLayer<K> {
        TokenLayer {
            tokens: self.tokens,
            origins: self.origins,
            judge,
        }
    }
}

impl<S, J: Clone> Layer<S> for TokenLayer<J> {
    type Service = Token<S, J>;

    fn layer(&self, inner: S) -> Self::Service {
        Token::new(
            inner,
            self.tokens.clone(),
            Arc::clone(&self.origins),
            self.judge.clone(),
        )
    }
}
