//! reqwest's client as a service of the `http` crate's requests.

use std::{
    cell::Cell,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use pin_project_lite::pin_project;
use reqwest::{Body, Error, redirect, retry};
use tower::layer::layer_fn;
use tower_service::Service;
use tower_tds_limits::held;

/// A [`reqwest::Client`] for [`TdsLayer`](crate::TdsLayer) to be put around: `http::Request` in, `http::Response` out.
///
/// The client's own redirects and retries are turned off: a token follows no redirect, and each attempt takes a
/// permit. reqwest reads addresses as browsers do (WHATWG), so that some characters of a target are escaped on the
/// way. Nobody outside can see when its sockets end. They are as many as the requests in flight, and as many idle
/// ones as it may keep, and those that are being opened: with [`Limits::in_flight`](crate::Limits::in_flight) of 25 and 25 idle
/// ones they stay within 60 where ten at the most are opened at once (tower's `GlobalConcurrencyLimitLayer` as its
/// `connector_layer`). That holds with `http1_only`, for one host, and while no request is cancelled: the socket of a
/// cancelled one is still dying when the next is opened.
///
/// What has no connection at its deadline, or when its caller goes, is not sent. Of HTTP/2 that holds for the call that
/// connects: another that waits for the same connection may be sent up to ten seconds later, so that `http1_only` is
/// the safe choice.
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

/// A connector of reqwest's that says while it connects.
#[derive(Clone)]
struct Connects<C>(C);

pin_project! {
    struct ConnectsFuture<F> {
        #[pin]
        inner: F,
    }
}

// === impl Reqwest ===

impl Reqwest {
    /// Builds the client, without redirects and retries of its own.
    ///
    /// # Errors
    /// reqwest's own, if TLS cannot be set up.
    pub fn new(client: reqwest::ClientBuilder) -> Result<Self, Error> {
        let client = client.connector_layer(layer_fn(Connects));
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
        CONNECTS.set(false);
        let polled = self.0.as_mut().poll(cx);
        // Whatever was said before: a pool may have had another connection for it, and does not say so.
        held(CONNECTS.get());
        polled
    }
}

impl fmt::Debug for ReqwestFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReqwestFuture").finish_non_exhaustive()
    }
}

// === impl Connects ===

impl<C: Service<T>, T> Service<T> for Connects<C> {
    type Response = C::Response;
    type Error = C::Error;
    type Future = ConnectsFuture<C::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        connects(self.0.poll_ready(cx))
    }

    fn call(&mut self, target: T) -> Self::Future {
        ConnectsFuture {
            inner: self.0.call(target),
        }
    }
}

impl<F: Future> Future for ConnectsFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        connects(self.project().inner.poll(cx))
    }
}

fn connects<T>(polled: Poll<T>) -> Poll<T> {
    CONNECTS.set(polled.is_pending());
    polled
}

thread_local! {
    /// Whether the poll that is going on has looked at a connect that is not done. A pool looks at it in each poll of
    /// the call that began it, until that has a connection.
    static CONNECTS: Cell<bool> = const { Cell::new(false) };
}
