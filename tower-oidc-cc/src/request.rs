//! Client-credentials grant (RFC 6749, section 4.4): credentials, and one token request.

use std::{
    error::Error,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_util::{FutureExt as _, future::BoxFuture};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header, response::Parts};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::timeout;
use tower_tds_outcome::Secrets;

use crate::{
    clock::Clock,
    credentials::{Credentials, Form, Provider},
    endpoint::TokenEndpoint,
    error::{Kind, TokenError},
    reply::{self, Issued},
    state::Current,
};

#[cfg(test)]
mod tests;

/// Fetches a token with credentials: a [`Grant`], or a store above it.
pub(crate) trait Fetch: Send + Sync + 'static {
    /// `current` is the token in use at the start of the flight.
    fn fetch<'a>(
        &'a self,
        credentials: &'a Credentials,
        current: Option<Current>,
    ) -> BoxFuture<'a, Result<Issued, TokenError>>;

    /// Returns the longest time of a fetch.
    fn longest(&self) -> Duration;

    fn settings(&self) -> &Settings;
}

/// Fetches each token by a token request.
pub(crate) struct Grant {
    exchange: Box<Exchange>,
    settings: Settings,
    /// Endpoint that was discovered. The mutex guards only this field.
    discovered: Mutex<Option<TokenEndpoint>>,
}

/// Settings of all token requests of a source.
pub(crate) struct Settings {
    pub(crate) endpoint: TokenEndpoint,
    pub(crate) provider: Provider,
    /// Fields of all forms, besides those of the grant and the client.
    pub(crate) parameters: Vec<(String, String)>,
    /// Headers of all requests.
    pub(crate) headers: HeaderMap,
    /// Longest time of one request.
    pub(crate) timeout: Duration,
    pub(crate) clock: Clock,
}

/// The HTTP client behind one type: sends a request and reads the response.
pub(crate) type Exchange =
    dyn Fn(Request<Bytes>) -> BoxFuture<'static, Result<Answer, TokenError>> + Send + Sync;
/// The head of a response, and its body or an error.
pub(crate) type Answer = (Parts, Result<Bytes, TokenError>);

// === impl Grant ===

impl Grant {
    pub(crate) fn new(exchange: Box<Exchange>, settings: Settings) -> Self {
        Self {
            exchange,
            settings,
            discovered: Mutex::default(),
        }
    }

    /// Returns the endpoint, from the discovery document if there is one.
    async fn endpoint(&self) -> Result<TokenEndpoint, TokenError> {
        let endpoint = &self.settings.endpoint;
        if !endpoint.is_discovered() {
            return Ok(endpoint.clone());
        }
        if let Some(endpoint) = &*self.discovered() {
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
        let Settings {
            clock, parameters, ..
        } = &self.settings;
        let sent = clock.now();
        let request = request_at(sent.wall, endpoint, credentials, parameters)?;
        let secrets = self.settings.provider.secrets();
        know(secrets, &request);
        let (head, body) = self.exchange(request).await?;
        let issued = reply::read(&head, body, sent, clock.wall())?;
        secrets.add(TOKEN, issued.token.secret());
        Ok(issued)
    }

    async fn exchange(&self, mut request: Request<Bytes>) -> Result<Answer, TokenError> {
        for (name, value) in &self.settings.headers {
            let entry = request.headers_mut().entry(name);
            entry.or_insert_with(|| value.clone());
        }
        let answer = timeout(self.settings.timeout, (self.exchange)(request)).await;
        answer.unwrap_or_else(|_| Err(Kind::Timeout.into()))
    }
}

impl Fetch for Grant {
    fn fetch<'a>(
        &'a self,
        credentials: &'a Credentials,
        _: Option<Current>,
    ) -> BoxFuture<'a, Result<Issued, TokenError>> {
        let fetched = async move {
            let endpoint = self.endpoint().await?;
            self.ask(&endpoint, credentials).await.map_err(|error| {
                if !error.is_refusal() {
                    // The endpoint may have moved, so the next fetch reads the document again.
                    *self.discovered() = None;
                }
                error
                    .at(endpoint.uri())
                    .without(self.settings.provider.secrets())
            })
        };
        fetched.boxed()
    }

    fn longest(&self) -> Duration {
        let is_discovered = self.settings.endpoint.is_discovered();
        let requests = if is_discovered { 2 } else { 1 };
        self.settings.timeout.saturating_mul(requests)
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }
}

// === impl Settings ===

impl Settings {
    /// Returns the address of the endpoint, or of the document that names it.
    pub(crate) fn uri(&self) -> &Uri {
        self.endpoint.uri()
    }

    /// Calls the provider. If it panics or takes too long, that is an error like any other.
    async fn credentials(&self) -> Result<Arc<Credentials>, TokenError> {
        let provided = timeout(self.timeout, self.provider.provide());
        let provided = match AssertUnwindSafe(provided).catch_unwind().await {
            Ok(Ok(provided)) => provided,
            Ok(Err(_)) => Err("the provider took too long".into()),
            Err(_) => Err("the provider panicked".into()),
        };
        provided.map_err(|error| TokenError::no_credentials(&*error, self.provider.secrets()))
    }
}

/// One flight: the credentials, and a token for them. `None` if the credentials are those that were refused.
pub(crate) async fn fly(
    fetch: &dyn Fetch,
    current: Option<Current>,
    refused: Option<u16>,
) -> Result<Option<Issued>, TokenError> {
    let settings = fetch.settings();
    let secrets = settings.provider.secrets();
    let credentials = settings.credentials().await?;
    let digest = credentials.digest();
    if refused == Some(digest) {
        return Ok(None);
    }
    let fetched = fetch.fetch(&credentials, current).await;
    let issued = fetched.map_err(|error| error.without(secrets).for_credentials(digest))?;
    secrets.add(TOKEN, issued.token.secret());
    Ok(Some(issued))
}

/// Returns the longest time of a flight.
pub(crate) fn longest_flight(fetch: &dyn Fetch) -> Duration {
    fetch.settings().timeout.saturating_add(fetch.longest())
}

/// Builds a token request. Each attempt builds its own, because an assertion is valid once.
fn request_at(
    now: SystemTime,
    endpoint: &TokenEndpoint,
    credentials: &Credentials,
    parameters: &[(String, String)],
) -> Result<Request<Bytes>, TokenError> {
    let mut form = Form::new(String::new());
    let proof = credentials.prove_at(now, endpoint, &mut form)?;
    form.extend_pairs(parameters);

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

/// Adds the client's proof to the secrets that no text may show.
fn know(secrets: &Secrets, request: &Request<Bytes>) {
    if let Some(header) = request.headers().get(header::AUTHORIZATION) {
        secrets.add_authorization(header);
    }
    for (field, value) in form_urlencoded::parse(request.body()) {
        let known = PROOFS.into_iter().find(|proof| *proof == field);
        if let Some(proof) = known {
            secrets.add(proof, &value);
        }
    }
}

/// Reads a response, and its body to the end or to `LARGEST`.
pub(crate) async fn collect<R>(response: Response<R>) -> Answer
where
    R: Body,
    R::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (head, body) = response.into_parts();
    let body = match Limited::new(body, LARGEST).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Kind::Malformed("it is larger than 64 KiB").into())
        }
        Err(error) => Err(TokenError::with_source(
            Kind::Malformed("it was cut off"),
            error,
        )),
    };
    (head, body)
}

pub(crate) fn transport(error: impl Into<Box<dyn Error + Send + Sync>>) -> TokenError {
    TokenError::with_source(Kind::Transport, error)
}

/// The name of tokens among the secrets.
const TOKEN: &str = "access_token";
/// Fields of a form that prove something: RFC 6749, 7521, 8693.
const PROOFS: [&str; 6] = [
    "client_secret",
    "client_assertion",
    "assertion",
    "password",
    "subject_token",
    "actor_token",
];
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
