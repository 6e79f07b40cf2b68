//! One token request: the client-credentials grant over HTTP (RFC 6749, section 4.4).

use std::{
    error::Error,
    future::poll_fn,
    marker::PhantomData,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use bytes::{Buf, Bytes};
use form_urlencoded::byte_serialize;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, header, response::Parts};
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
pub(crate) type Fetching = BoxFuture<'static, Result<Issued, TokenError>>;

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

/// A grant that POSTs a form.
pub(crate) struct Post {
    query: Arc<Query>,
}

/// The endpoint, the terms and the client.
struct Query {
    client: Box<dyn Exchange>,
    terms: Terms,
    endpoint: TokenEndpoint,
    /// Guards the endpoint that was discovered; nothing else happens under it.
    discovered: Mutex<Option<TokenEndpoint>>,
}

/// Sends one request and reads its answer; erases the type of the HTTP client.
trait Exchange: Send + Sync {
    /// Makes the request when the client is ready, so that a signed statement is not old.
    fn exchange<'a>(&'a self, terms: &'a Terms, make: Make<'a>) -> BoxFuture<'a, Exchanged>;
}

type Make<'a> = Box<dyn FnOnce(Timestamp) -> Result<Request<Bytes>, TokenError> + Send + 'a>;
type Exchanged = Result<(Timestamp, Answer), TokenError>;

/// Guards the cloning only: it makes the client shareable where `S` is not `Sync`.
struct Client<S, B>(Mutex<S>, PhantomData<fn() -> B>);

/// Collects fields as `application/x-www-form-urlencoded`, in memory that is wiped after the request.
#[derive(Default)]
pub(crate) struct Form {
    text: Wiped,
}

// === impl Post ===

impl Post {
    pub(crate) fn new<S, B, R>(client: S, endpoint: TokenEndpoint, terms: Terms) -> Self
    where
        S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        S::Future: Send,
        B: From<Bytes> + 'static,
        R: Body + Send + 'static,
        R::Data: Send,
        R::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let query = Query {
            client: Box::new(Client(Mutex::new(client), PhantomData)),
            terms,
            endpoint,
            discovered: Mutex::default(),
        };
        Self {
            query: Arc::new(query),
        }
    }
}

impl Grant for Post {
    fn fetch(&self, credentials: Arc<Credentials>) -> Fetching {
        let query = Arc::clone(&self.query);
        Box::pin(async move {
            let endpoint = query.endpoint().await?;
            query.ask(&endpoint, &credentials).await.map_err(|error| {
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
    async fn endpoint(&self) -> Result<TokenEndpoint, TokenError> {
        if !self.endpoint.is_discovered() {
            return Ok(self.endpoint.clone());
        }
        if let Some(endpoint) = &*self.discovered() {
            return Ok(endpoint.clone());
        }
        let document = self.endpoint.uri();
        let make: Make<'_> = Box::new(|_| {
            let mut request = Request::new(Bytes::new());
            *request.uri_mut() = document.clone();
            request.headers_mut().insert(header::ACCEPT, JSON);
            Ok(request)
        });
        let found = match self.client.exchange(&self.terms, make).await {
            Ok((_, (head, body))) => {
                let now = self.terms.clock.now().wall;
                self.endpoint.found(&head, body, now)
            }
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

    async fn ask(
        &self,
        endpoint: &TokenEndpoint,
        credentials: &Credentials,
    ) -> Result<Issued, TokenError> {
        let parameters = &self.terms.parameters;
        let make: Make<'_> =
            Box::new(|now| request_at(now.wall, endpoint, credentials, parameters));
        let (sent, (head, body)) = self.client.exchange(&self.terms, make).await?;
        let token = reply::read(&head, body, self.terms.clock.now().wall)?;
        let header =
            header_of(&token.value).map_err(|reason| TokenError::new(Kind::Unusable(reason)))?;
        Ok(Issued {
            header,
            sent,
            life: token.life.unwrap_or(UNSAID),
            is_own: true,
        })
    }
}

// === impl Client ===

impl<S, B, R> Exchange for Client<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send,
    B: From<Bytes> + 'static,
    R: Body + Send + 'static,
    R::Data: Send,
    R::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn exchange<'a>(&'a self, terms: &'a Terms, make: Make<'a>) -> BoxFuture<'a, Exchanged> {
        let client = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut client = client.clone();
        Box::pin(async move {
            // A client that waits for a permit has sent nothing yet, so this has a bound of its own.
            let ready = timeout(terms.readiness, poll_fn(|cx| client.poll_ready(cx))).await;
            let ready = ready.map_err(|_| TokenError::new(Kind::NotReady))?;
            ready.map_err(|e| TokenError::with_source(Kind::Transport, e))?;
            let sent = terms.clock.now();
            let answered = client.call(make(sent)?.map(B::from));
            let exchange = async {
                let answered = answered.await;
                let response = answered.map_err(|e| TokenError::with_source(Kind::Transport, e))?;
                let (head, body) = response.into_parts();
                let body = if reply::is_compressed(&head.headers) {
                    Err(TokenError::new(Kind::Malformed(COMPRESSED)))
                } else {
                    collect(body).await
                };
                Ok((sent, (head, body)))
            };
            let answer = timeout(terms.timeout, exchange).await;
            answer.unwrap_or_else(|_| Err(TokenError::new(Kind::Timeout)))
        })
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
fn request_at(
    now: SystemTime,
    endpoint: &TokenEndpoint,
    credentials: &Credentials,
    parameters: &Parameters,
) -> Result<Request<Bytes>, TokenError> {
    let mut form = Form::default();
    form.append("grant_type", "client_credentials");
    let proof = credentials.prove_at(now, endpoint, &mut form)?;
    parameters.append_to(&mut form);

    let mut request = Request::new(form.into_bytes());
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
