//! Calls to one host over HTTP/1.1, on an idle connection or a new one.

use std::{
    future::Future,
    io::{self, ErrorKind},
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::{
    HeaderValue, Request, Response, Uri,
    header::{self, CONTENT_LENGTH, HOST},
    uri::Authority,
};
use http_body::Body;
use http_body_util::{BodyExt as _, combinators::BoxBody};
use hyper::{
    body::Incoming,
    rt::{Read, Write},
};
use hyper_util::client::legacy::connect::Connection;
use tokio::sync::oneshot;
use tower::{BoxError, ServiceExt as _};
use tower_oidc_cc::Origin;
use tower_service::Service;
use tower_tds_outcome::{Cause, HandOver, Handed, Outcome, chain};

use crate::http::{
    connection::{HeadWait, InUse, connection},
    pool::Pool,
};

/// Body of a response. Boxed, because each layer above moves the response.
pub(crate) type AnyBody = BoxBody<Bytes, BoxError>;

/// Client over a pool, with any connector, behind one pointer, because each call clones it.
pub(crate) struct Http<B>(pub(crate) Arc<dyn Fn(Request<B>) -> HttpFuture + Send + Sync>);

/// A call until its response head.
pub(crate) type HttpFuture =
    Pin<Box<dyn Future<Output = Result<Response<AnyBody>, BoxError>> + Send>>;

/// Makes connections. Its readiness is the permit of a socket.
pub(crate) trait Connector:
    Service<
        Uri,
        Response: Read + Write + Connection + Send + Unpin + 'static,
        Error: Into<BoxError>,
        Future: Send + 'static,
    > + Clone
    + Send
    + Sync
    + 'static
{
}

/// The one host of a pool. The layers above let no request pass that is for another one.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    /// Scheme and authority, for the connector.
    address: Uri,
    header: HeaderValue,
}

/// Calls a pool, and connects if it has no idle connection.
struct Caller<B, C> {
    pool: Arc<Pool<B>>,
    /// `None` if each request names its own, as those for tokens do after a discovery.
    host: Option<Host>,
    connector: C,
}

// === impl Http ===

impl<B> Http<B>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    pub(crate) fn new(pool: Arc<Pool<B>>, host: Option<Host>, connector: impl Connector) -> Self {
        let caller = Arc::new(Caller {
            pool,
            host,
            connector,
        });
        Self(Arc::new(move |request| {
            Box::pin(Arc::clone(&caller).call(request))
        }))
    }
}

impl<B> Clone for Http<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B> Service<Request<B>> for Http<B> {
    type Response = Response<AnyBody>;
    type Error = BoxError;
    type Future = HttpFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> HttpFuture {
        (self.0)(request)
    }
}

// === impl C ===

impl<C> Connector for C
where
    C: Service<Uri, Error: Into<BoxError>, Future: Send + 'static> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Send + Unpin + 'static,
{
}

// === impl Host ===

impl Host {
    pub(crate) fn of(uri: &Uri) -> Result<Self, BoxError> {
        let origin = Origin::from_uri(uri)?.to_string();
        let address = Uri::try_from(&origin)?;
        // RFC 9110, section 7.2: without a default port, as an origin has it.
        let authority = address.authority().map_or("", Authority::as_str);
        let header = HeaderValue::from_str(authority)?;
        Ok(Self { address, header })
    }

    /// Leaves only the path of a request's address, and adds the headers that it lacks. Here and not
    /// above, because Retry copies what it gets.
    fn complete<B: Body>(&self, request: &mut Request<B>) {
        let path = mem::take(request.uri_mut()).into_parts().path_and_query;
        *request.uri_mut() = path.map(Uri::from).unwrap_or_default();
        let is_sized = request.body().size_hint().exact().is_some();
        let headers = request.headers_mut();
        if is_sized {
            // The retry layer has compared it with the body, by which hyper frames the request.
            headers.remove(CONTENT_LENGTH);
        }
        // RFC 9112, section 3.2: a connection does not add it.
        headers.entry(HOST).or_insert_with(|| self.header.clone());
        // Some firewalls refuse requests without one (RFC 9110, section 10.1.5).
        headers.entry(header::USER_AGENT).or_insert(USER_AGENT);
    }
}

// === impl Caller ===

impl<B, C> Caller<B, C>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
    C: Connector,
{
    /// Sends a request on a connection. One that was not written, because its connection was
    /// closed while it was idle, goes on with another.
    async fn call(self: Arc<Self>, mut request: Request<B>) -> Result<Response<AnyBody>, BoxError> {
        let own;
        let host = match &self.host {
            Some(host) => host,
            None => {
                own = Box::new(Host::of(request.uri())?);
                &*own
            }
        };
        host.complete(&mut request);
        let mut hand_over = HandOver::of(request.extensions());
        loop {
            // The results of both marks are not needed, because a call that is given up drops this future in the same step.
            hand_over.mark(Handed::Held);
            let mut connection = match self.pool.take() {
                Some(idle) => InUse::of(&self.pool, idle),
                // In a box, because a future beyond a kilobyte takes a slower path of the allocator.
                None => Box::pin(self.wait(host)).await?,
            };
            let is_reused = connection.is_reused;
            let Some(sender) = &mut connection.sender else {
                return Err(not_sent(ENDED));
            };
            hand_over.mark(Handed::Taken);
            let mut wait = HeadWait::begin(&self.pool, &connection.home, is_reused);
            match sender.try_send_request(request).await {
                Ok(response) => {
                    wait.end();
                    return Ok(response.map(|body| boxed(body, connection)));
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) if is_reused => {
                        wait.is_over = true;
                        request = unsent;
                    }
                    Some(_) => return Err(not_sent(error.into_error())),
                    None => {
                        let error = error.into_error();
                        if self.pool.is_direct && is_end_of_peer(&error) {
                            hand_over.mark(Handed::Ended);
                        }
                        return Err(error.into());
                    }
                },
            }
        }
    }

    /// Waits for a connection that comes back, or for a new one.
    async fn wait(&self, host: &Host) -> Result<InUse<B>, BoxError> {
        let mut connect = pin!(self.connect(host));
        loop {
            let mut returned = pin!(self.pool.returned.notified());
            // Registered before the list is read, so that no notification is missed.
            returned.as_mut().enable();
            if let Some(idle) = self.pool.take() {
                return Ok(InUse::of(&self.pool, idle));
            }
            match select(connect.as_mut(), returned).await {
                Either::Left((connected, _)) => return connected.map_err(not_sent),
                Either::Right(_) => {}
            }
        }
    }

    /// Connects. Until the socket has its permit, this ends with its call; from then on a task
    /// goes on for others.
    async fn connect(&self, host: &Host) -> Result<InUse<B>, BoxError> {
        let mut connector = self.connector.clone();
        let connecting = connector.ready().await.map_err(Into::into)?;
        let connecting = connecting.call(host.address.clone());
        let (caller, connected) = oneshot::channel();
        drop(tokio::spawn(connection(
            async move { connecting.await.map_err(Into::into) },
            caller,
            Arc::downgrade(&self.pool),
            self.pool.until_closed(),
        )));
        connected.await.unwrap_or_else(|_| Err(ENDED.into()))
    }
}

/// Whether the peer has reset or ended the connection.
#[cold]
fn is_end_of_peer(error: &hyper::Error) -> bool {
    let kinds = chain(error).filter_map(|link| link.downcast_ref::<io::Error>());
    let is_end = |kind| matches!(kind, ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof);
    error.is_incomplete_message() || kinds.map(io::Error::kind).any(is_end)
}

/// Boxes a body, whose connection is in use until the body is dropped.
fn boxed<B: Send + 'static>(body: Incoming, connection: InUse<B>) -> AnyBody {
    let connection = (!body.is_end_stream()).then_some(connection);
    let of_connection = move |error: hyper::Error| {
        let _in_use = &connection;
        error.into()
    };
    body.map_err(of_connection).boxed()
}

/// Marks the error of a request that was not written to a connection.
fn not_sent(error: impl Into<BoxError>) -> BoxError {
    Cause::new(Outcome::Unsent).over(error).into()
}

pub(crate) const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!(
    env!("CARGO_PKG_NAME"),
    "/",
    env!("CARGO_PKG_VERSION")
));

/// Message for a panic of the connector, or the end of its runtime.
const ENDED: &str = "the task that connects has ended without a result";
