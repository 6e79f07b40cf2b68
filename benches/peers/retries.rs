//! reqwest-retry in reqwest-middleware, and the bare service of both.

use std::convert::Infallible;

use async_trait::async_trait;
use http::{Extensions, Method};
use reqwest::{Client, Request, Response, Url};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error, Middleware, Next};
use reqwest_retry::{RetryTransientMiddleware, policies::ExponentialBackoff};
use tower::service_fn;
use tower_service::Service;

/// Answers at once, with the request's body, where reqwest would send it.
#[derive(Clone, Copy, Debug)]
struct Answers;

// === impl Answers ===

#[async_trait]
impl Middleware for Answers {
    async fn handle(
        &self,
        request: Request,
        _: &mut Extensions,
        _: Next<'_>,
    ) -> Result<Response, Error> {
        Ok(answer(request))
    }
}

/// The bare service in reqwest's types.
#[must_use]
pub fn bare() -> impl Service<Request, Response = Response, Error = Infallible> + Clone + Send {
    service_fn(async |request| Ok(answer(request)))
}

/// A client that runs the middleware and sends nothing.
#[must_use]
pub fn empty() -> ClientWithMiddleware {
    builder().with(Answers).build()
}

/// The same client with retries, as the front page of reqwest-retry sets them up.
#[must_use]
pub fn retrying() -> ClientWithMiddleware {
    let policy = ExponentialBackoff::builder().build_with_max_retries(3);
    let retry = RetryTransientMiddleware::new_with_policy(policy);
    builder().with(retry).with(Answers).build()
}

/// A client that sends, without retries.
#[must_use]
pub fn plain() -> ClientWithMiddleware {
    builder().build()
}

/// The same client with retries.
#[must_use]
pub fn sending() -> ClientWithMiddleware {
    let policy = ExponentialBackoff::builder().build_with_max_retries(3);
    let retry = RetryTransientMiddleware::new_with_policy(policy);
    builder().with(retry).build()
}

/// A client as a service. The client is borrowed, because its own `Service` clones it for each
/// call.
#[must_use]
pub fn service(
    client: &ClientWithMiddleware,
) -> impl Service<Request, Response = Response, Error = Error> + Clone + Send {
    service_fn(|request| client.execute(request))
}

/// Returns a function that makes copies of `like` as reqwest's requests. Returns `None` if the
/// address of `like` is not a URL.
pub fn requests<B>(like: &http::Request<B>) -> Option<impl Fn() -> Request + use<B>> {
    let url = Url::parse(&like.uri().to_string()).ok()?;
    let headers = like.headers().clone();
    Some(move || {
        let mut request = Request::new(Method::GET, url.clone());
        *request.headers_mut() = headers.clone();
        request
    })
}

fn answer(mut request: Request) -> Response {
    let body = request.body_mut().take().unwrap_or_default();
    http::Response::new(body).into()
}

fn builder() -> ClientBuilder {
    crate::install_cryptography();
    ClientBuilder::new(Client::new())
}
