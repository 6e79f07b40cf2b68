//! The client-credentials grant (RFC 6749, section 4.4): credentials, the store, one token request.

use std::{
    error::Error,
    panic::AssertUnwindSafe,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_util::{FutureExt as _, future::BoxFuture};
use http::{HeaderValue, Method, Request, Response, Uri, header, response::Parts};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::{sync::Mutex as AsyncMutex, time::timeout};
use tower_tds_outcome::Secrets;

use crate::{
    Credentials, Provider, TokenEndpoint, TokenError,
    clock::Clock,
    credentials::Form,
    error::Kind,
    reply::{self, Issued},
    store::{Erased, LONGEST_WAIT, Leases, OPERATION_TIMEOUT},
};

#[cfg(test)]
mod tests;

/// Fetches tokens: from a store, or by a token request with the current credentials.
pub(crate) struct Grant {
    exchange: Box<Exchange>,
    settings: Settings,
    leases: Option<AsyncMutex<Leases>>,
    /// The endpoint that was discovered. The mutex guards only this field.
    discovered: Mutex<Option<TokenEndpoint>>,
}

/// The settings of all token requests of a source.
pub(crate) struct Settings {
    pub(crate) endpoint: TokenEndpoint,
    pub(crate) provider: Provider,
    /// The fields of all forms, besides those of the grant and the client.
    pub(crate) parameters: Vec<(String, String)>,
    /// The time for one request.
    pub(crate) timeout: Duration,
    pub(crate) clock: Clock,
}

/// The HTTP client without its type: sends one request and reads the response.
pub(crate) type Exchange =
    dyn Fn(Request<Bytes>) -> BoxFuture<'static, Result<Answer, TokenError>> + Send + Sync;
/// A head, and a body or its error.
pub(crate) type Answer = (Parts, Result<Bytes, TokenError>);

// === impl Grant ===

impl Grant {
    pub(crate) fn new(
        exchange: Box<Exchange>,
        settings: Settings,
        store: Option<Box<dyn Erased>>,
    ) -> Self {
        let leases = store.map(|store| {
            let (endpoint, parameters) = (&settings.endpoint, &settings.parameters);
            let (clock, secrets) = (settings.clock.clone(), settings.provider.secrets().clone());
            let leases = Leases::new(store, clock, secrets, TERM, endpoint, parameters);
            AsyncMutex::new(leases)
        });
        Self {
            exchange,
            settings,
            leases,
            discovered: Mutex::default(),
        }
    }

    /// The address of the endpoint, or of the document that names it.
    pub(crate) fn uri(&self) -> &Uri {
        self.settings.endpoint.uri()
    }

    /// The longest time that [`fetch`](Self::fetch) and [`save`](Self::save) take together.
    pub(crate) fn longest_flight(&self) -> Duration {
        let provider = self.settings.timeout;
        let longest = self.settings.longest_request().saturating_add(provider);
        longest.saturating_add(LONGEST_WAIT)
    }

    /// Takes the token of another process if `prefers` accepts it. If not, requests a token.
    pub(crate) async fn fetch(
        &self,
        prefers: impl Fn(&Issued) -> bool + Send,
    ) -> Result<Issued, TokenError> {
        let provided = timeout(self.settings.timeout, self.settings.provider.provide());
        let credentials = match AssertUnwindSafe(provided).catch_unwind().await {
            Ok(Ok(provided)) => provided,
            Ok(Err(_)) => Err("the provider took too long".into()),
            Err(_) => Err("the provider panicked".into()),
        };
        let secrets = self.settings.provider.secrets();
        let credentials =
            credentials.map_err(|error| TokenError::no_credentials(&*error, secrets))?;
        if let Some(leases) = &self.leases
            && let Some(issued) = leases.lock().await.find(&credentials, prefers).await
        {
            secrets.add(TOKEN, issued.token.secret());
            return Ok(issued);
        }
        let endpoint = self
            .endpoint()
            .await
            .map_err(|error| error.without(secrets))?;
        self.ask(&endpoint, &credentials).await.map_err(|error| {
            if error.oauth_error().is_none() {
                // The endpoint may have moved, so the next fetch reads the document again.
                *self.discovered() = None;
            }
            error.at(endpoint.uri()).without(secrets)
        })
    }

    /// Saves a token of this process in the store, or gives back the lease if there is none.
    pub(crate) async fn save(&self, issued: Option<Issued>) {
        if let Some(leases) = &self.leases {
            let saved = async { leases.lock().await.save(issued).await };
            // A store that panics has saved nothing.
            drop(AssertUnwindSafe(saved).catch_unwind().await);
        }
    }

    /// Returns the endpoint. Reads the discovery document if there is one.
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

    async fn exchange(&self, request: Request<Bytes>) -> Result<Answer, TokenError> {
        let answer = timeout(self.settings.timeout, (self.exchange)(request)).await;
        answer.unwrap_or_else(|_| Err(Kind::Timeout.into()))
    }
}

// === impl Settings ===

impl Settings {
    /// The longest time for a token request, with a discovery if there is one, and for three operations
    /// of a store.
    fn longest_request(&self) -> Duration {
        let requests = if self.endpoint.is_discovered() { 2 } else { 1 };
        let request = self.timeout.saturating_mul(requests);
        request.saturating_add(OPERATION_TIMEOUT.saturating_mul(3))
    }
}

/// Builds a token request. Each attempt builds its own, because an assertion is valid once.
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
    // Without this header, Keycloak may answer an internal error with an HTML page.
    headers.insert(header::ACCEPT, JSON);
    if let Some(proof) = proof {
        headers.insert(header::AUTHORIZATION, proof);
    }
    Ok(request)
}

/// Adds what proves the client to the secrets that no text may show.
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
        Err(error) => Err(transport(error)),
    };
    (head, body)
}

pub(crate) fn transport(error: impl Into<Box<dyn Error + Send + Sync>>) -> TokenError {
    TokenError::with_source(Kind::Transport, error)
}

/// The name of tokens among the secrets.
const TOKEN: &str = "access_token";
/// The fields of a form that prove something: RFC 6749, 7521, 8693.
const PROOFS: [&str; 6] = [
    "client_secret",
    "client_assertion",
    "assertion",
    "password",
    "subject_token",
    "actor_token",
];
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The term of a lease. A healthy endpoint answers sooner. A process that is stopped while it holds the
/// lease delays the others by this time. A slower endpoint gets one request every five seconds.
const TERM: Duration = Duration::from_secs(5);
/// The largest reply. A token of Keycloak 26.5.0 has 959 to 1,405 bytes, and several times that with
/// many roles. Proxies accept no header of 64 KiB.
const LARGEST: usize = 64 * 1024;
