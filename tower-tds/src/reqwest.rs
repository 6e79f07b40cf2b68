//! reqwest's client as a service of the `http` crate's requests.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use reqwest::{Body, Error, redirect, retry};
use tower_service::Service;

/// A [`reqwest::Client`] for [`TdsLayer`](crate::TdsLayer) to be put around: `http::Request` in, `http::Response` out.
///
/// The client's own redirects and retries are turned off: a token follows no redirect, and each attempt takes a
/// permit. reqwest reads addresses as browsers do (WHATWG), so that some characters of a target are escaped on the
/// way. Nobody outside can see when its sockets end. They are as many as the requests in flight, and as many idle
/// ones as it may keep: with [`Limits::in_flight`](crate::Limits::in_flight) of 25 and 25 idle ones they stay below
/// 60, those that are being opened included.
///
/// # Backpressure
/// It is always ready.
///
/// # Cancel safety
/// Dropping the future ends the request.
///
/// # Clone
/// Clones share the sockets.
///
/// # Errors
/// reqwest's own, which [`Error`](crate::Error) names by their causes.
///
/// # Examples
/// ```
/// use tower::ServiceBuilder;
/// use tower_tds::{Client, Reqwest};
///
/// # fn run(client: Client) -> Result<(), reqwest::Error> {
/// let http = Reqwest::new(reqwest::Client::builder().http1_only().pool_max_idle_per_host(25))?;
/// let service = ServiceBuilder::new().layer(client.layer()).service(http);
/// # drop(service);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Reqwest(reqwest::Client);

/// The response of a [`Reqwest`].
///
/// # Cancel safety
/// Dropping it ends the request.
pub struct ReqwestFuture(Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send>>);

// === impl Reqwest ===

impl Reqwest {
    /// Builds the client, without redirects and retries of its own.
    ///
    /// # Errors
    /// reqwest's own, if TLS cannot be set up.
    pub fn new(client: reqwest::ClientBuilder) -> Result<Self, Error> {
        let client = client.redirect(redirect::Policy::none());
        Ok(Self(client.retry(retry::never()).build()?))
    }
}

impl<B: Into<Body>> Service<Request<B>> for Reqwest {
    type Response = Response<Body>;
    type Error = Error;
    type Future = ReqwestFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ReqwestFuture {
        let client = self.0.clone();
        let request = reqwest::Request::try_from(request);
        ReqwestFuture(Box::pin(async move {
            Ok(client.execute(request?).await?.into())
        }))
    }
}

// === impl ReqwestFuture ===

impl Future for ReqwestFuture {
    type Output = Result<Response<Body>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for ReqwestFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReqwestFuture").finish_non_exhaustive()
    }
}
