//! One token request: the client-credentials grant over HTTP (RFC 6749, section 4.4).

use std::{
    error::Error,
    future::poll_fn,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use form_urlencoded::Serializer;
use futures_util::{FutureExt as _, future::BoxFuture};
use http::{HeaderValue, Method, Request, Response, header, response::Parts};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::timeout;
use tower_service::Service;

use crate::{
    Credentials, TokenEndpoint, TokenError, clock::Clock, error::Kind, reply, state::Fetched,
};

#[cfg(test)]
mod tests;

/// Makes token requests.
pub(crate) struct Grant {
    exchange: Box<Exchange>,
    parameters: Parameters,
    timeout: Duration,
    clock: Clock,
    endpoint: TokenEndpoint,
    /// Guards the endpoint that was discovered; nothing else happens under it.
    discovered: Mutex<Option<TokenEndpoint>>,
}

/// Sends one request and reads its answer: the HTTP client without its type.
type Exchange =
    dyn Fn(Request<Bytes>) -> BoxFuture<'static, Result<Answer, TokenError>> + Send + Sync;
/// A head, and a body or its error.
type Answer = (Parts, Result<Bytes, TokenError>);
/// The form of a request.
pub(crate) type Form = Serializer<'static, String>;
/// The fields of all forms of a source, besides those of the grant and the client.
pub(crate) type Parameters = Vec<(String, String)>;

/// A token on its way into the slot.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) header: HeaderValue,
    pub(crate) fetched: Fetched,
}

// === impl Grant ===

impl Grant {
    pub(crate) fn new<S, B, R>(
        client: S,
        endpoint: TokenEndpoint,
        parameters: Parameters,
        timeout: Duration,
        clock: Clock,
    ) -> Self
    where
        S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        S::Future: Send,
        B: From<Bytes> + 'static,
        R: Body + Send + 'static,
        R::Data: Send,
        R::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        // Guards the cloning only: it makes the client shareable where `S` is not `Sync`.
        let client = Mutex::new(client);
        let exchange = move |request: Request<Bytes>| {
            let mut client = client
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            let answer = async move {
                poll_fn(|cx| client.poll_ready(cx))
                    .await
                    .map_err(transport)?;
                let response = client.call(request.map(B::from)).await.map_err(transport)?;
                let (head, body) = response.into_parts();
                Ok((head, collect(body).await))
            };
            answer.boxed()
        };
        Self {
            exchange: Box::new(exchange),
            parameters,
            timeout,
            clock,
            endpoint,
            discovered: Mutex::default(),
        }
    }

    /// Makes one token request, after a discovery where the endpoint is not known.
    pub(crate) async fn fetch(&self, credentials: &Credentials) -> Result<Issued, TokenError> {
        let endpoint = self.endpoint().await?;
        self.ask(&endpoint, credentials).await.map_err(|error| {
            if error.oauth_error().is_none() {
                // It may have moved.
                *self.discovered() = None;
            }
            error.at(endpoint.uri())
        })
    }

    /// The endpoint, which may have to be discovered first.
    async fn endpoint(&self) -> Result<TokenEndpoint, TokenError> {
        if !self.endpoint.is_discovered() {
            return Ok(self.endpoint.clone());
        }
        if let Some(endpoint) = &*self.discovered() {
            return Ok(endpoint.clone());
        }
        let document = self.endpoint.uri();
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = document.clone();
        request.headers_mut().insert(header::ACCEPT, JSON);
        let found = match self.exchange(request).await {
            Ok((head, body)) => self.endpoint.found(&head, body, self.clock.wall()),
            Err(error) => Err(error),
        };
        let endpoint = found.map_err(|error| error.in_discovery().at(document))?;
        tracing::info!(?endpoint, "the token endpoint was discovered");
        *self.discovered() = Some(endpoint.clone());
        Ok(endpoint)
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
        let sent = self.clock.now();
        let request = request_at(sent.wall, endpoint, credentials, &self.parameters)?;
        let (head, body) = self.exchange(request).await?;
        let token = reply::read(&head, body, self.clock.wall())?;
        Ok(Issued {
            header: header_of(&token.value).map_err(Kind::Unusable)?,
            fetched: Fetched {
                sent,
                life: token.life.unwrap_or(UNSAID),
                is_own: true,
            },
        })
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Answer, TokenError> {
        let answer = timeout(self.timeout, (self.exchange)(request)).await;
        answer.unwrap_or_else(|_| Err(Kind::Timeout.into()))
    }
}

/// The request as it is sent. Each attempt makes its own, because a signed statement is valid once.
fn request_at(
    now: SystemTime,
    endpoint: &TokenEndpoint,
    credentials: &Credentials,
    parameters: &[(String, String)],
) -> Result<Request<Bytes>, TokenError> {
    let mut form = Form::new(String::new());
    form.append_pair("grant_type", "client_credentials");
    let proof = credentials.prove_at(now, endpoint, &mut form)?;
    form.extend_pairs(parameters);

    let mut request = Request::new(Bytes::from(form.finish()));
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

/// Reads a body to its end, or to `LARGEST`.
async fn collect<R>(body: R) -> Result<Bytes, TokenError>
where
    R: Body,
    R::Error: Into<Box<dyn Error + Send + Sync>>,
{
    match Limited::new(body, LARGEST).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Kind::Malformed("it is larger than 64 KiB").into())
        }
        Err(error) => Err(transport(error)),
    }
}

fn transport(error: impl Into<Box<dyn Error + Send + Sync>>) -> TokenError {
    TokenError::with_source(Kind::Transport, error)
}

/// Makes the sensitive header of a token, or returns why it cannot be one.
pub(crate) fn header_of(token: &str) -> Result<HeaderValue, &'static str> {
    if token.is_empty() {
        return Err("it is empty");
    }
    // RFC 6750, section 2.1, allows less still. A space or a line end would end the header for some
    // readers.
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("it is not visible ASCII");
    }
    let header = HeaderValue::try_from(format!("{SCHEME}{token}"));
    let mut header = header.map_err(|_| "it is no header value")?;
    header.set_sensitive(true);
    Ok(header)
}

/// The token in a header that [`header_of`] made.
pub(crate) fn token_of(header: &HeaderValue) -> Option<&str> {
    header.to_str().ok()?.strip_prefix(SCHEME)
}

const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// A token of a Keycloak 26.5.0 has 959 to 1,405 bytes; with many roles it has several times that,
/// and 64 KiB is more than a proxy on the way would let through as a header.
const LARGEST: usize = 64 * 1024;
/// RFC 6749 only recommends `expires_in`. Five minutes are the default of Keycloak's realm setting
/// "Access Token Lifespan": too short costs a request, too long a 401.
const UNSAID: Duration = Duration::from_secs(5 * 60);
const SCHEME: &str = "Bearer ";
