//! The client-credentials grant over HTTP (RFC 6749, section 4.4).

use std::{
    error::Error,
    future::poll_fn,
    marker::PhantomData,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::{Buf, Bytes};
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::timeout;
use tower_service::Service;
use zeroize::Zeroizing;

use super::{Ask, Flight, Grant, Issued, Means, Terms, decode::decode, reply};
use crate::{
    Credentials, TokenError, clock::Clock, error::token::Kind, tokens::bearer, wiped::Wiped,
};

/// A grant that POSTs a form through `S`.
pub(in crate::tokens) struct Post<S, B> {
    /// Guards nothing but the cloning: it makes `Post` shareable where `S` is not `Sync`.
    client: Mutex<S>,
    ask: Arc<Ask>,
    terms: Terms,
    readiness: Duration,
    timeout: Duration,
    clock: Clock,
    body: PhantomData<fn() -> B>,
}

// === impl Post ===

impl<S, B> Post<S, B> {
    pub(in crate::tokens) fn new(
        client: S,
        (ask, terms): (Ask, Terms),
        (readiness, timeout): (Duration, Duration),
        clock: Clock,
    ) -> Self {
        Self {
            client: Mutex::new(client),
            ask: Arc::new(ask),
            terms,
            readiness,
            timeout,
            clock,
            body: PhantomData,
        }
    }
}

impl<S, B, R> Grant for Post<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send,
    B: From<Bytes> + 'static,
    R: Body + Send + 'static,
    R::Data: Send,
    R::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn fetch(&self, credentials: Arc<Credentials>) -> Flight {
        let mut client = self
            .client
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let ask = Arc::clone(&self.ask);
        let (terms, unready, limit) = (self.terms, self.readiness, self.timeout);
        let clock = self.clock.clone();
        Box::pin(async move {
            // Bounded apart: a client that waits for a permit has sent nothing yet.
            match timeout(unready, poll_fn(|cx| client.poll_ready(cx))).await {
                Ok(ready) => ready.map_err(|e| TokenError::with_source(Kind::Transport, e))?,
                Err(_) => return Err(TokenError::new(Kind::NotReady)),
            }
            timeout(limit, exchange(client, (&ask, terms), credentials, clock))
                .await
                .unwrap_or_else(|_| Err(TokenError::new(Kind::Timeout)))
        })
    }
}

/// Makes one request of a client that is ready.
async fn exchange<S, B, R>(
    mut client: S,
    (ask, terms): (&Ask, Terms),
    credentials: Arc<Credentials>,
    clock: Clock,
) -> Result<Issued, TokenError>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: From<Bytes>,
    R: Body,
    R::Error: Into<Box<dyn Error + Send + Sync>>,
{
    // After the wait for readiness, so that a signed statement is not old when it is sent.
    let sent = clock.now();
    let request = ask.request_at(sent.wall, &credentials)?;
    let response = client
        .call(request)
        .await
        .map_err(|e| TokenError::with_source(Kind::Transport, e))?;
    let (head, body) = response.into_parts();
    let body = match collect(body).await {
        Ok(wire) => decode(&head.headers, wire).await,
        Err(error) => Err(error),
    };
    let token = reply::read(&head, body, clock.now().wall)?;
    let header =
        bearer::header(&token.value).map_err(|reason| TokenError::new(Kind::Unusable(reason)))?;
    let life = terms.life(token.life, &header, sent.wall);
    Ok(Issued {
        header,
        sent,
        life,
        means: Means::Request,
    })
}

/// Reads a body to its end, or to `LARGEST`. The buffer held a token: it is wiped.
async fn collect<R>(body: R) -> Result<Zeroizing<Vec<u8>>, TokenError>
where
    R: Body,
    R::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut body = pin!(body);
    let mut whole = Wiped::with_capacity(USUAL);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| TokenError::with_source(Kind::Transport, e))?;
        let Ok(mut data) = frame.into_data() else {
            continue;
        };
        if data.remaining() > LARGEST.saturating_sub(whole.as_slice().len()) {
            return Err(TokenError::new(Kind::Malformed("it is larger than 64 KiB")));
        }
        while data.has_remaining() {
            let chunk = data.chunk();
            whole.push(chunk);
            let read = chunk.len();
            data.advance(read);
        }
    }
    Ok(whole.into_vec())
}

/// A token of a Keycloak 26.5.0 has 959 to 1,405 bytes; with many roles it has several times that,
/// and 64 KiB is more than a proxy on the way would let through as a header.
pub(super) const LARGEST: usize = 64 * 1024;
/// Room for a usual reply, so that the buffer seldom grows.
const USUAL: usize = 8 * 1024;
