//! The service: it waits for a token in `poll_ready`, and sends it in `call`.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{HeaderValue, Request, header::AUTHORIZATION};
use tower_service::Service;

use crate::{
    Challenge, Error, Judge, TokenError, Tokens,
    error::token::Kind,
    future::ResponseFuture,
    rules::{Rules, Ruling},
    tokens::Wait,
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
pub struct Token<S, J = Challenge> {
    inner: S,
    tokens: Tokens,
    rules: Arc<Rules>,
    judge: J,
    phase: Phase,
}

/// How far readiness has come.
#[derive(Debug)]
enum Phase {
    /// No token has been seen since the last call.
    Token(Wait),
    /// A token has been seen. From here there is no way back to waiting: the service below may
    /// hold a permit by now, or a place in the queue for one.
    Inner,
    /// There is no token, and the next call says why.
    Failed(TokenError),
}

// === impl Token ===

impl<S, J> Token<S, J> {
    pub(crate) fn new(inner: S, tokens: Tokens, rules: Arc<Rules>, judge: J) -> Self {
        Self {
            inner,
            tokens,
            rules,
            judge,
            phase: Phase::default(),
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

    /// The header of this moment, and the number of the token in it.
    fn header(&self) -> Result<(HeaderValue, u64), TokenError> {
        if let Some(bearer) = &*self.tokens.attended() {
            return Ok((bearer.header.clone(), bearer.generation));
        }
        match self.tokens.unattended() {
            Some(bearer) => Ok((bearer.header.clone(), bearer.generation)),
            None => Err(TokenError::new(Kind::Expired)),
        }
    }
}

impl<S, J, B> Service<Request<B>> for Token<S, J>
where
    S: Service<Request<B>>,
    J: Judge<S::Response, S::Error> + Clone,
{
    type Response = S::Response;
    type Error = Error<S::Error>;
    type Future = ResponseFuture<S::Future, J>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        match &mut self.phase {
            // ## Token => (Inner | Failed)
            Phase::Token(wait) => {
                if !self.tokens.is_fresh()
                    && let Err(error) = ready!(wait.poll(&self.tokens, cx))
                {
                    self.phase = Phase::Failed(error);
                    return Poll::Ready(Ok(()));
                }
                self.phase = Phase::Inner;
            }
            Phase::Inner => {}
            Phase::Failed(_) => return Poll::Ready(Ok(())),
        }
        self.inner.poll_ready(cx).map_err(Error::Inner)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match mem::take(&mut self.phase) {
            Phase::Inner => {}
            Phase::Failed(error) => return ResponseFuture::refused(error),
            // Called without readiness: the token may be there nevertheless.
            Phase::Token(_) => {}
        }
        let header = match self.rules.rule(&request) {
            Ok(Ruling::Token) => self.header(),
            Ok(Ruling::Nothing) => return ResponseFuture::passed(self.inner.call(request)),
            Err(error) => Err(error),
        };
        match header {
            Ok((header, generation)) => {
                // Insert replaces every value there was: a server that sees two takes either.
                request.headers_mut().insert(AUTHORIZATION, header);
                let sent = self.inner.call(request);
                ResponseFuture::sent(sent, self.tokens.clone(), generation, self.judge.clone())
            }
            Err(error) => ResponseFuture::refused(error),
        }
    }
}

impl<S: Clone, J: Clone> Clone for Token<S, J> {
    fn clone(&self) -> Self {
        Self::new(
            self.inner.clone(),
            self.tokens.clone(),
            Arc::clone(&self.rules),
            self.judge.clone(),
        )
    }
}

// === impl Phase ===

impl Default for Phase {
    fn default() -> Self {
        Self::Token(Wait::default())
    }
}
