//! The client: its calls, its status, and its shutdown.

use std::{
    fmt::{self, Display},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use tokio::time::timeout;
use tower_oidc_cc::TokenSource;
use tower_service::Service;
use tower_tds_errors::{CloneBody, Error, RetryLayer};
use tower_tds_limits::Limiter;

use self::{
    base::Base,
    body::ResponseBody,
    call::Call,
    request::RequestBody,
    sender::{CallFuture, Sender},
    status::Status,
};
use crate::stack::TdsLayer;

pub(crate) mod base;
pub(crate) mod body;
pub(crate) mod call;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod sender;
pub(crate) mod status;

/// Calls the service with a valid token, within its limits, and returns typed errors.
///
/// # Backpressure
/// `poll_ready` is always ready: the future of a call waits for its token and its permits, within
/// its deadline. If you would rather reject calls, put a `LoadShed` over a `ConcurrencyLimit`
/// around the client.
///
/// # Cancel safety
/// If you drop a call that was sent, it is completed in the background, so that its response frees
/// its permit and its connection stays open. Token requests continue as well.
///
/// # Clone
/// Clones share the token, the limits and the sockets.
///
/// # Connections
/// It speaks HTTP/1.1 over a pool of its own. For HTTP/2, put a [`TdsLayer`](crate::TdsLayer) over a
/// client of yours. Idle connections close after 30 s, with the last clone, and after
/// [`shutdown`](Self::shutdown). If a call on a connection that was idle waits too long for its head,
/// the network may have gone silent, so those that were idle for longer are closed as well. Too long
/// is four times what heads take on average, and at least half a second.
///
/// # Runtimes
/// Connections belong to the runtime of the call that opened them. If that runtime has ended, a
/// call on such a connection is retried. But a current-thread runtime runs its connections only
/// inside `block_on`: outside of it, a call from another runtime waits until the attempt times out.
/// So give each current-thread runtime its own client, with clones of one [`Limiter`].
///
/// # Errors
/// [`Error::kind`] is the kind of the failure, and the text has the next step. If the body of a
/// success ends early, the [body](ResponseBody) returns the error.
///
/// # Examples
/// See the [crate's front page](crate).
#[derive(Clone)]
pub struct Client {
    sender: Arc<Sender>,
}

// === impl Client ===

impl Client {
    pub(crate) fn new(sender: Sender) -> Self {
        let sender = Arc::new(sender);
        Self { sender }
    }

    /// Creates a GET call. `target` is a path, which is appended to the base URL, or an absolute URI
    /// of the service.
    ///
    /// A valid URI is sent byte for byte. Characters beyond ASCII are percent-encoded. For a value
    /// that may contain anything, use [`Call::query`], which encodes it.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn run(client: tower_tds::Client) -> Result<(), tower_tds::Error> {
    /// let bus = client.get("/v1/live/bus?$filter=line%20eq%20'307'").await?;
    /// println!("{}", bus.text().await?);
    ///
    /// let line = 307;
    /// let stops = client.get(format!("/v1/stops/{line}")).await?;
    /// # drop(stops);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, target: impl Display) -> Call {
        let request = Base::parse(target.to_string()).map(|uri| {
            let mut request = Request::new(RequestBody::default());
            *request.uri_mut() = uri;
            request
        });
        Call::new(&self.sender, request)
    }

    /// Creates a call from any request. Its URI is a path, which is appended to the base URL, or an
    /// absolute URI of the service.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn run(client: tower_tds::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let search = http::Request::post("/v1/search").body(r#"{"line":307}"#)?;
    /// let found = client.request(search).await?;
    /// # drop(found);
    /// # Ok(())
    /// # }
    /// ```
    pub fn request<B: Into<RequestBody>>(&self, request: Request<B>) -> Call {
        Call::new(&self.sender, Ok(request.map(Into::into)))
    }

    /// Closes the client and all its clones, and waits for calls and token requests in flight.
    /// Returns whether all of them ended in time. Then it closes the connections that are idle; one
    /// in use closes at the end of its body.
    ///
    /// Cancelled calls that run in the background are in flight as well. Responses are in flight
    /// until you have read or dropped their bodies. If several clients share a [`Limiter`], this
    /// waits for the requests of all of them.
    ///
    /// # Cancel safety
    /// If the future is dropped, the client stays closed.
    pub async fn shutdown(&self, within: Duration) -> bool {
        self.sender.is_closed.send_replace(true);
        let ended = async {
            // A call in a backoff or in the queue is not in flight for the limiter, so its end is
            // awaited first.
            self.sender.is_closed.closed().await;
            self.sender.limiter.idle().await;
            // Saving a token may also be in progress.
            self.sender.tokens.idle().await;
        };
        let have_ended = timeout(within, ended).await.is_ok();
        self.sender.pool.close();
        have_ended
    }

    /// Returns a [`TdsLayer`] with this client's token and limits, for another HTTP client.
    ///
    /// To limit the sockets of the other client as well, put a
    /// [`ConnectionLimitLayer`](tower_tds_limits::ConnectionLimitLayer) of
    /// [`limiter`](Self::limiter) around its connector.
    ///
    /// Retries and deadline have the defaults of [`TdsLayer`]. If you set a
    /// [`retry`](TdsLayer::retry) layer of your own, give it the client's name. Calls through the
    /// layer appear in [`Status::limits`] but not in [`Status::calls`], and
    /// [`shutdown`](Self::shutdown) waits only for those in flight.
    #[must_use]
    pub fn layer<T>(&self) -> TdsLayer<CloneBody<T>> {
        let sender = &self.sender;
        let origins = [sender.base.origin.clone()];
        let retry = match &sender.name {
            Some(name) => RetryLayer::new().name(Arc::clone(name)),
            None => RetryLayer::new(),
        };
        TdsLayer::new(sender.tokens.clone(), origins, sender.limiter.clone()).retry(retry)
    }

    /// Returns the status: calls, limits, token, and the last failure.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::of(&self.sender)
    }

    /// Returns the token source. [`TokenSource::ready`] checks the credentials at start-up, without
    /// a data call.
    #[must_use]
    pub fn tokens(&self) -> &TokenSource {
        &self.sender.tokens
    }

    /// Returns the limiter of the data calls, for its snapshot, and for the connections of another
    /// client.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.sender.limiter
    }
}

impl<B: Into<RequestBody>> Service<Request<B>> for Client {
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = CallFuture<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // The retry layer is always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.sender.send(Ok(request.map(Into::into)), None)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("limiter", &self.sender.limiter)
            .finish_non_exhaustive()
    }
}
