//! The service: it waits for a token in `poll_ready`, and sends it in `call`.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Uri, header::AUTHORIZATION};
use tower_service::Service;

use crate::{
    Challenge, Error, Judge, TokenError, TokenSource,
    error::token::Kind,
    future::ResponseFuture,
    origin::Rules,
    source::{Lane, Wait},
    state::Call,
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
    bound: Arc<Bound>,
    judge: J,
    /// What the last call took of its token: while that is in use, the next call needs no other.
    lane: Option<Arc<Lane>>,
    phase: Phase,
    /// Idle but in the phase of waiting for a token.
    wait: Wait,
    /// Full in the phase of failure alone.
    failure: Option<TokenError>,
}

/// What all services of a layer share, behind one count.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) source: TokenSource,
    pub(crate) rules: Rules,
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
    pub(crate) fn new(inner: S, bound: Arc<Bound>, judge: J) -> Self {
        Self {
            inner,
            bound,
            judge,
            lane: None,
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

    /// Waits for the first token, or for the next one after an expiry.
    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<Phase> {
        self.bound.source.poll(&mut self.wait, cx).map(|found| {
            self.failure = found.err();
            match self.failure {
                None => Phase::Inner,
                Some(_) => Phase::Failed,
            }
        })
    }

    /// The lane of this moment.
    #[inline]
    fn lane(&mut self) -> Result<&Arc<Lane>, TokenError> {
        let current = self.bound.source.current();
        let kept = self.lane.as_ref();
        if current == 0 || kept.is_none_or(|lane| lane.generation != current) {
            self.lane = self.bound.source.lane(current);
        }
        let lane = self.lane.as_ref();
        lane.ok_or_else(|| TokenError::new(Kind::Expired))
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
            self.phase = if self.bound.source.current() == 0 {
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
        let lane = match self.bound.rules.admit(&request) {
            Ok(true) => self.lane().map(Some),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        let sent = match lane {
            Ok(Some(lane)) => {
                // Insert replaces every value there was: a server that sees two takes either.
                let headers = request.headers_mut();
                headers.insert(AUTHORIZATION, lane.header.clone());
                Some((Arc::clone(lane), place(request.uri())))
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
            Arc::clone(&self.bound),
            self.judge.clone(),
        )
    }
}

/// The place that a request goes to, without its query: the same number for the same place.
#[inline]
fn place(uri: &Uri) -> Call {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    mix(mix(0, authority.as_bytes()), uri.path().as_bytes())
}

/// As rustc's own hash does it, eight bytes at a time: nobody gains by a collision here, which
/// costs a token request.
#[inline]
fn mix(mut state: u64, bytes: &[u8]) -> u64 {
    let mut step = |word: u64| state = (state.rotate_left(5) ^ word).wrapping_mul(SPREAD);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        step(u64::from_le_bytes(*word));
    }
    // The last eight, some of them again: no loop over single bytes where there are eight.
    match bytes.last_chunk::<8>() {
        Some(last) => step(u64::from_le_bytes(*last)),
        None => rest.iter().for_each(|byte| step(u64::from(*byte))),
    }
    state
}

/// 2^64 divided by the golden ratio, made odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
