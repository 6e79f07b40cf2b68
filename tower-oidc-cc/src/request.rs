//! Client-credentials grant (RFC 6749, section 4.4): credentials, and one token request.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_util::{FutureExt as _, future::BoxFuture};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header, response::Parts};
use http_body::Body;
use http_body_util::{BodyExt as _, Collected, LengthLimitError, Limited};
use tokio::time::timeout;
use tower_service::Service;
use tower_tds_outcome::Secrets;

use crate::{
    clock::Clock,
    credentials::{Credentials, CredentialsProvider, Form},
    endpoint::TokenEndpoint,
    error::{BoxError, ErrorKind, TokenError},
    reply::{self, Issued},
    state::Bearer,
    store::{BoxStore, FlightContext, key},
};

#[cfg(test)]
mod tests;

/// The grant of one source: makes its token requests.
pub(crate) struct Grant {
    exchange: Box<Exchange>,
    pub(crate) settings: TokenRequests,
}

/// Settings that all token requests of a source share.
pub(crate) struct TokenRequests {
    pub(crate) endpoint: TokenEndpoint,
    pub(crate) provider: CredentialsProvider,
    /// Credentials that are sent and tokens that come, which no text may show.
    pub(crate) secrets: Secrets,
    /// Fields of all forms, besides those of the grant and the client.
    pub(crate) fields: Vec<(String, String)>,
    /// Headers of all requests.
    pub(crate) headers: HeaderMap,
    /// Longest time of one request.
    pub(crate) timeout: Duration,
    pub(crate) clock: Clock,
    pub(crate) store: Option<BoxStore>,
}

/// The HTTP client behind one type: sends a request and reads the response, whose body may fail alone.
pub(crate) type Exchange =
    dyn Fn(Request<Bytes>) -> BoxFuture<'static, Result<Pieces<BoxError>, BoxError>> + Send + Sync;
/// Head and body of a response.
type Pieces<E> = (Parts, Result<Bytes, E>);

// === impl Grant ===

impl Grant {
    pub(crate) fn new(exchange: Box<Exchange>, settings: TokenRequests) -> Self {
        Self { exchange, settings }
    }

    /// One flight: the credentials, and a token for them. `None` if the credentials are those that were refused.
    /// `newest` is the newest token so far.
    pub(crate) async fn fly(
        &self,
        newest: Option<&Bearer>,
        refused: Option<u16>,
    ) -> Result<Option<Issued>, TokenError> {
        let TokenRequests {
            endpoint,
            secrets,
            fields,
            clock,
            store,
            ..
        } = &self.settings;
        let credentials = self.credentials().await?;
        let digest = credentials.digest();
        if refused == Some(digest) {
            return Ok(None);
        }
        let asked = self.ask(&credentials);
        let fetched = match store {
            Some(store) => {
                let context = FlightContext {
                    key: key(endpoint, fields, credentials.client_id()),
                    digest,
                    newest,
                    clock,
                    secrets,
                };
                store.share(&context, asked).await
            }
            None => asked.await,
        };
        let of_these = |error: TokenError| error.for_credentials(digest).at(endpoint.uri());
        fetched.map(Some).map_err(of_these)
    }

    /// Calls the provider. If it takes too long, that is an error like any other.
    async fn credentials(&self) -> Result<Arc<Credentials>, TokenError> {
        let (provider, secrets) = (&self.settings.provider, &self.settings.secrets);
        let provided = timeout(self.settings.timeout, provider.provide()).await;
        let provided = provided.unwrap_or_else(|_| Err("the provider took too long".into()));
        let provided = provided.map_err(|error| TokenError::no_credentials(&*error, secrets))?;
        provided.tell(secrets);
        Ok(provided)
    }

    /// Requests a token.
    async fn ask(&self, credentials: &Credentials) -> Result<Issued, TokenError> {
        let endpoint = self.endpoint().await?;
        let TokenRequests { clock, fields, .. } = &self.settings;
        let secrets = &self.settings.secrets;
        let sent = clock.now();
        let request = request_at(sent.wall, &endpoint, credentials, fields)?;
        let read = match self.exchange(request).await {
            Ok((head, body)) => reply::read(&head, body, sent, clock.wall(), secrets),
            Err(error) => Err(error),
        };
        let mut issued = read.map_err(|error| error.at(endpoint.uri()))?;
        // Before it is saved: a store may show it in an error.
        issued.token.hold(secrets);
        Ok(issued)
    }

    /// Returns the endpoint. A discovery document is read each time, because the endpoint may have moved.
    async fn endpoint(&self) -> Result<TokenEndpoint, TokenError> {
        let endpoint = &self.settings.endpoint;
        if !endpoint.is_discovered() {
            return Ok(endpoint.clone());
        }
        let document = endpoint.uri();
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = document.clone();
        request.headers_mut().insert(header::ACCEPT, JSON);
        let found = match self.exchange(request).await {
            Ok((head, body)) => endpoint.found(&head, body, self.settings.clock.wall()),
            Err(error) => Err(error),
        };
        found.map_err(|error| error.at(document))
    }

    async fn exchange(
        &self,
        mut request: Request<Bytes>,
    ) -> Result<Pieces<TokenError>, TokenError> {
        for (name, value) in &self.settings.headers {
            let entry = request.headers_mut().entry(name);
            entry.or_insert_with(|| value.clone());
        }
        let failed = |kind, error| TokenError::with_source(kind, error, &self.settings.secrets);
        let answer = timeout(self.settings.timeout, (self.exchange)(request)).await;
        let answer = answer.map_err(|_| ErrorKind::Late)?;
        let (head, body) = answer.map_err(|error| failed(ErrorKind::Transport, error))?;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => ErrorKind::Malformed("it is larger than 64 KiB").into(),
            false => failed(ErrorKind::Malformed("it was cut off"), error),
        });
        Ok((head, body))
    }
}

/// Puts the HTTP client behind one type.
pub(crate) fn exchange<S, B, R>(client: S) -> Box<Exchange>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: From<Bytes> + 'static,
    R: Body + Send + 'static,
    R::Data: Send,
    R::Error: Into<BoxError>,
{
    // Held only while the client is cloned. It makes the closure `Sync` where `S` is not.
    let client = Mutex::new(client);
    Box::new(move |request| {
        let client = client.lock();
        let mut client = client.unwrap_or_else(PoisonError::into_inner).clone();
        let answer = async move {
            let ready = poll_fn(|cx| client.poll_ready(cx)).await;
            ready.map_err(Into::into)?;
            let response = client.call(request.map(B::from)).await;
            let (head, body) = response.map_err(Into::into)?.into_parts();
            let body = Limited::new(body, LARGEST).collect().await;
            Ok((head, body.map(Collected::to_bytes)))
        };
        answer.boxed()
    })
}

/// Builds a token request. Each attempt builds its own, because an assertion is valid once.
fn request_at(
    now: SystemTime,
    endpoint: &TokenEndpoint,
    credentials: &Credentials,
    fields: &[(String, String)],
) -> Result<Request<Bytes>, TokenError> {
    let mut form = Form::new(String::new());
    let proof = credentials.prove_at(now, endpoint, &mut form)?;
    form.extend_pairs(fields);

    let mut request = Request::new(Bytes::from(form.finish()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = endpoint.uri().clone();
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, FORM);
    // Without this header, Keycloak may answer an internal error with an HTML page.
    headers.insert(header::ACCEPT, JSON);
    if let Some(proof) = proof {
        headers.insert(header::AUTHORIZATION, proof);
    }
    Ok(request)
}

/// Name of this crate, for logs of servers and for firewalls that refuse requests without one (RFC 9110, section 10.1.5).
pub(crate) const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!(
    env!("CARGO_PKG_NAME"),
    "/",
    env!("CARGO_PKG_VERSION")
));
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Largest reply. A token of Keycloak 26.5.0 has 959 to 1,405 bytes, and several times that with
/// many roles. Proxies accept no header of 64 KiB.
const LARGEST: usize = 64 * 1024;
