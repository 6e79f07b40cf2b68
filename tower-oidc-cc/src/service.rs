//! The service: it waits for a token in `poll_ready`, and sends it in `call`.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, header::AUTHORIZATION};
use tower_service::Service;

use crate::{
    Challenge, Error, Event, Judge, TokenError, TokenSource,
    error::token::Kind,
    future::ResponseFuture,
    rules::{Rules, Ruling},
    tokens::{Badge, Wait},
};

/// Puts a bearer token on each request.
///
/// # Backpressure
///
/// A valid token is part of readiness and comes first: while there is none, the service below is
/// not polled, and so no permit of a limiter below is held while a token is fetched. With a valid
/// token `poll_ready` only forwards.
///
/// It never fails for want of a token. A failed token request is kept and returned by the future
/// of the next `call`, which then leaves the service below alone; its readiness was not asked for
/// either.
///
/// A token can expire between `poll_ready` and `call`; so can a request be meant for an origin
/// that is not listed. Then the service below was made ready in vain and stays ready. Drop the
/// service, as `oneshot` does, if token requests run under a limit that its readiness holds.
///
/// # Cancel safety
///
/// Dropping the service while it waits, or the future that `call` returned, leaves the token
/// request to those who still wait for it.
///
/// # Clone
///
/// Clones share the token and start unready.
///
/// # Errors
///
/// [`Error::Token`]: there was no token; the request was not sent.
/// [`Error::Inner`]: the service below failed, in `poll_ready` or in its response.
#[derive(Debug)]
pub struct BearerAuth<S, J = Challenge> {
    inner: S,
    tokens: TokenSource,
    rules: Arc<Rules>,
    judge: J,
    /// The badge of the last call: while its token is in use, the next call needs no other.
    badge: Option<Badge>,
    phase: Phase,
    /// Idle but in the phase of waiting for a token.
    wait: Wait,
    /// Full in the phase of failure alone.
    failure: Option<TokenError>,
}

/// How far readiness has come. What a phase may need stands beside it and not inside, so that a
/// call that needs none of it has nothing to drop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// No token has been seen since the last call.
    #[default]
    Token,
    /// A token has been seen. From here there is no way back to waiting: the service below may
    /// hold a permit by now, or a place in the queue for one.
    Inner,
    /// There is no token, and the next call says why.
    Failed,
}

// === impl BearerAuth ===

impl<S, J> BearerAuth<S, J> {
    pub(crate) fn new(inner: S, tokens: TokenSource, rules: Arc<Rules>, judge: J) -> Self {
        Self {
            inner,
            tokens,
            rules,
            judge,
            badge: None,
            phase: Phase::default(),
            wait: Wait::default(),
            failure: None,
        }
    }

    /// The service below.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service below, mutably.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service below, alone.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// Waits for a token, whoever holds `wait`.
    pub(crate) fn poll_token(
        &self,
        wait: &mut Wait,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), TokenError>> {
        wait.poll(&self.tokens, cx)
    }

    pub(crate) fn tell(&self, event: &Event) {
        self.tokens.tell(event);
    }

    /// Waits for the first token, or for the next one after an expiry.
    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<Phase> {
        self.wait.poll(&self.tokens, cx).map(|found| {
            self.failure = found.err();
            match self.failure {
                None => Phase::Inner,
                Some(_) => Phase::Failed,
            }
        })
    }

    /// The badge of this moment.
    #[inline]
    fn badge(&mut self) -> Result<&Badge, TokenError> {
        let current = self.tokens.current();
        if self.badge.as_ref().is_none_or(|b| b.generation != current) {
            self.change();
        }
        let badge = self.badge.as_ref();
        badge.ok_or_else(|| TokenError::new(Kind::Expired))
    }

    /// Takes the badge of another token, or the first one.
    #[inline(never)]
    fn change(&mut self) {
        self.badge = self.tokens.badge();
    }
}

impl<S, J, B> Service<Request<B>> for BearerAuth<S, J>
where
    S: Service<Request<B>>,
    J: Judge<S::Response, S::Error> + Clone,
{
    type Response = S::Response;
    type Error = Error<S::Error>;
    type Future = ResponseFuture<S::Future, J>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        if self.phase == Phase::Token {
            // ## Token => (Inner | Failed)
            self.phase = if self.tokens.current() == 0 {
                ready!(self.poll_first(cx))
            } else {
                self.wait.rest();
                Phase::Inner
            };
        }
        if self.phase == Phase::Failed {
            return Poll::Ready(Ok(()));
        }
        self.inner.poll_ready(cx).map_err(Error::Inner)
    }

    #[inline]
    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // Called without readiness? The token may be there nevertheless.
        if mem::take(&mut self.phase) == Phase::Failed
            && let Some(error) = self.failure.take()
        {
            return ResponseFuture::refused(error);
        }
        let badge = match self.rules.rule(&request) {
            Ok(Ruling::Token) => self.badge().map(Some),
            Ok(Ruling::Nothing) => Ok(None),
            Err(error) => Err(error),
        };
        let sent = match badge {
            Ok(Some(badge)) => {
                // Insert replaces every value there was: a server that sees two takes either.
                let headers = request.headers_mut();
                headers.insert(AUTHORIZATION, badge.header.clone());
                Some((Arc::clone(&badge.desk), badge.generation))
            }
            Ok(None) => None,
            Err(error) => return ResponseFuture::refused(error),
        };
        ResponseFuture::sent(self.inner.call(request), sent, self.judge.clone())
    }
}

impl<S: Clone, J: Clone> Clone for BearerAuth<S, J> {
    fn clone(&self) -> Self {
        Self::new(
            self.inner.clone(),
            self.tokens.clone(),
            Arc::clone(&self.rules),
            self.judge.clone(),
        )
    }
}
