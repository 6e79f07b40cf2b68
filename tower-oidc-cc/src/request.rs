//! One token request: the client-credentials grant over HTTP (RFC 6749, section 4.4).

use std::{
    error::Error,
    future::{Future, poll_fn},
    marker::PhantomData,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use bytes::{Buf, Bytes};
use form_urlencoded::byte_serialize;
use http::{HeaderValue, Method, Request, Response, Uri, header, response::Parts};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::timeout;
use tower_service::Service;
use zeroize::Zeroizing;

use crate::{
    Credentials, Parameters, TokenEndpoint, TokenError,
    clock::{Clock, Timestamp},
    error::Kind,
    reply,
    source::header_of,
    wiped::Wiped,
};

#[cfg(test)]
mod tests;

/// One token request.
pub(crate) type Fetching = Pin<Box<dyn Future<Output = Result<Issued, TokenError>> + Send>>;

/// Makes token requests; erases the type of the HTTP client.
pub(crate) trait Grant: Send + Sync {
    fn fetch(&self, credentials: Arc<Credentials>) -> Fetching;
}

/// A token on its way into the slot.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) header: HeaderValue,
    /// When it was requested. Its life counts from here, because the server began to count later.
    pub(crate) sent: Timestamp,
    pub(crate) life: Duration,
    /// Whether this process requested it; otherwise it comes from the store.
    pub(crate) is_own: bool,
}

/// The terms of all requests of a source.
pub(crate) struct Terms {
    pub(crate) parameters: Parameters,
    /// The time for the client's readiness.
    pub(crate) readiness: Duration,
    /// The time for a request of a client that is ready.
    pub(crate) timeout: Duration,
    pub(crate) clock: Clock,
}

/// A grant that POSTs a form through `S`.
pub(crate) struct Post<S, B> {
    /// Guards the cloning only: it makes `Post` shareable where `S` is not `Sync`.
    client: Mutex<S>,
    query: Arc<Query>,
    body: PhantomData<fn() -> B>,
}

/// The endpoint and the terms.
struct Query {
    terms: Terms,
    endpoint: TokenEndpoint,
    /// Guards the endpoint that was discovered; nothing else happens under it.
    discovered: Mutex<Option<TokenEndpoint>>,
}

/// Collects fields as `application/x-www-form-urlencoded`, in memory that is wiped after the request.
#[derive(Default)]
pub(crate) struct Form {
    text: Wiped,
}

// === impl Post ===

impl<S, B> Post<S, B> {
    pub(crate) fn new(client: S, endpoint: TokenEndpoint, terms: Terms) -> Self {
        Self {
            client: Mutex::new(client),
            query: Arc::new(Query {
                terms,
                endpoint,
                discovered: Mutex::default(),
            }),
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
    fn fetch(&self, credentials: Arc<Credentials>) -> Fetching {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let mut client = client.clone();
        let query = Arc::clone(&self.query);
        Box::pin(async move {
            let endpoint = query.endpoint(&mut client).await?;
            let asked = query.ask(&mut client, &endpoint, &credentials).await;
            asked.map_err(|error| {
                if !error.is_rejected() {
                    query.forget();
                }
                error.at(endpoint.uri())
            })
        })
    }
}

// === impl Query ===

impl Query {
    /// The endpoint, which may have to be discovered first.
    async fn endpoint<S, B, R>(&self, client: &mut S) -> Result<TokenEndpoint, TokenError>
    where
        S: Service<Request<B>, Response = Response<R>>,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        B: From<Bytes>,
        R: Body,
        R::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        if !self.endpoint.is_discovered() {
            return Ok(self.endpoint.clone());
        }
        if let Some(endpoint) = &*self.discovered() {
            return Ok(endpoint.clone());
        }
        let document = self.endpoint.uri();
        let found = match self.read(client, document).await {
            Ok((head, body)) => self
                .endpoint
                .found(&head, body, self.terms.clock.now().wall),
            Err(error) => Err(error),
        };
        let endpoint = found.map_err(|error| error.in_discovery().at(document))?;
        tracing::info!(?endpoint, "the token endpoint was discovered");
        *self.discovered() = Some(endpoint.clone());
        Ok(endpoint)
    }

    /// Forgets the discovered endpoint, because it may have moved.
    fn forget(&self) {
        *self.discovered() = None;
    }

    fn discovered(&self) -> MutexGuard<'_, Option<TokenEndpoint>> {
        self.discovered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask<S, B, R>(
        &self,
        client: &mut S,
        endpoint: &TokenEndpoint,
        credentials: &Credentials,
    ) -> Result<Issued, TokenError>
    where
        S: Service<Request<B>, Response = Response<R>>,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        B: From<Bytes>,
        R: Body,
        R::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let terms = &self.terms;
        self.ready(client).await?;
        // After the wait for readiness, so that a signed statement is not old when it is sent.
        let sent = terms.clock.now();
        let answered = {
            let request = request_at(sent.wall, endpoint, credentials, &terms.parameters)?;
            client.call(request)
        };
        let (head, body) = self.bounded(answered).await?;
        let token = reply::read(&head, body, terms.clock.now().wall)?;
        let header =
            header_of(&token.value).map_err(|reason| TokenError::new(Kind::Unusable(reason)))?;
        let life = token.life.unwrap_or(UNSAID);
        Ok(Issued {
            header,
            sent,
            life,
            is_own: true,
        })
    }

    async fn read<S, B, R>(&self, client: &mut S, document: &Uri) -> Result<Answer, TokenError>
    where
        S: Service<Request<B>, Response = Response<R>>,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        B: From<Bytes>,
        R: Body,
        R::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        self.ready(client).await?;
        let answered = {
            let mut request = Request::new(B::from(Bytes::new()));
            *request.uri_mut() = document.clone();
            request.headers_mut().insert(header::ACCEPT, JSON);
            client.call(request)
        };
        self.bounded(answered).await
    }

    /// Waits for the client. A client that waits for a permit has sent nothing yet, so this has a bound
    /// of its own.
    async fn ready<S, B>(&self, client: &mut S) -> Result<(), TokenError>
    where
        S: Service<Request<B>>,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let ready = timeout(self.terms.readiness, poll_fn(|cx| client.poll_ready(cx))).await;
        match ready {
            Ok(ready) => ready.map_err(|e| TokenError::with_source(Kind::Transport, e)),
            Err(_) => Err(TokenError::new(Kind::NotReady)),
        }
    }

    /// Awaits one answer and reads its body.
    async fn bounded<R, E>(
        &self,
        answer: impl Future<Output = Result<Response<R>, E>>,
    ) -> Result<Answer, TokenError>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
        R: Body,
        R::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let exchange = async {
            let answered = answer.await;
            let response = answered.map_err(|e| TokenError::with_source(Kind::Transport, e))?;
            let (head, body) = response.into_parts();
            let body = if reply::is_compressed(&head.headers) {
                Err(TokenError::new(Kind::Malformed(COMPRESSED)))
            } else {
                collect(body).await
            };
            Ok((head, body))
        };
        timeout(self.terms.timeout, exchange)
            .await
            .unwrap_or_else(|_| Err(TokenError::new(Kind::Timeout)))
    }
}

// === impl Form ===

impl Form {
    pub(crate) fn append(&mut self, name: &str, value: &str) {
        if !self.text.as_slice().is_empty() {
            self.text.push(b"&");
        }
        self.put(name);
        self.text.push(b"=");
        self.put(value);
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.text.into_bytes()
    }

    fn put(&mut self, text: &str) {
        for piece in byte_serialize(text.as_bytes()) {
            self.text.push(piece.as_bytes());
        }
    }
}

/// A head, and a body or its error.
type Answer = (Parts, Result<Zeroizing<Vec<u8>>, TokenError>);

/// The request as it is sent. Each attempt makes its own, because a signed statement is valid once.
fn request_at<B: From<Bytes>>(
    now: SystemTime,
    endpoint: &TokenEndpoint,
    credentials: &Credentials,
    parameters: &Parameters,
) -> Result<Request<B>, TokenError> {
    let mut form = Form::default();
    form.append("grant_type", "client_credentials");
    let proof = credentials.prove_at(now, endpoint, &mut form)?;
    parameters.append_to(&mut form);

    let mut request = Request::new(B::from(form.into_bytes()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = endpoint.uri().clone();
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, FORM);
    // Without it, a Keycloak in trouble may answer with a page for a browser.
    headers.insert(header::ACCEPT, JSON);
    if let Some(proof) = proof {
        headers.insert(header::AUTHORIZATION, proof);
    }
    Ok(request)
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
        if data.remaining() > LARGEST - whole.as_slice().len() {
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

const COMPRESSED: &str = "it is compressed: let no proxy compress token replies";
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// A token of a Keycloak 26.5.0 has 959 to 1,405 bytes; with many roles it has several times that,
/// and 64 KiB is more than a proxy on the way would let through as a header.
const LARGEST: usize = 64 * 1024;
/// Room for a usual reply, so that the buffer seldom grows.
const USUAL: usize = 8 * 1024;
/// RFC 6749 only recommends `expires_in`. Five minutes are the default of Keycloak's realm setting
/// "Access Token Lifespan": too short costs a request, too long a 401.
const UNSAID: Duration = Duration::from_secs(5 * 60);
