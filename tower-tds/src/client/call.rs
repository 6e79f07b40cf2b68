//! One call of a client.

use std::{
    fmt::{self, Display},
    future::IntoFuture,
    sync::Arc,
    time::Duration,
};

use http::{HeaderName, HeaderValue, Request};
use tower::BoxError;
use tower_tds_errors::{Error, Kind};

use crate::client::{
    base::with_query,
    request::RequestBody,
    response::Response,
    sender::{CallFuture, Sender},
};

/// A call of [`Client::get`](crate::Client::get) or [`Client::request`](crate::Client::request),
/// which is sent when you await it.
///
/// An invalid target or header is reported at that time as well.
///
/// # Examples
/// ```no_run
/// # async fn run(client: tower_tds::Client) -> Result<(), tower_tds::Error> {
/// let bus = client
///     .get("/v1/live/bus")
///     .header("accept", "application/json")
///     .await?;
/// println!("{}", bus.text().await?);
/// # Ok(())
/// # }
/// ```
#[must_use = "a call is sent when it is awaited"]
pub struct Call {
    sender: Arc<Sender>,
    request: Result<Request<RequestBody>, Error>,
    deadline: Option<Duration>,
}

// === impl Call ===

impl Call {
    pub(crate) fn new(sender: &Arc<Sender>, request: Result<Request<RequestBody>, Error>) -> Self {
        Self {
            sender: Arc::clone(sender),
            request,
            deadline: None,
        }
    }

    /// Sets the deadline of the call, from its start to the end of its body.
    ///
    /// It covers the waits for a token, a permit and a connection, each attempt, each backoff, and the body. Nothing
    /// is sent after it. To bound only the wait for the response head, put the call into [`tokio::time::timeout`].
    ///
    /// If you also set [`Builder::deadline`](crate::Builder::deadline), the earlier one counts;
    /// with neither, a call has two minutes until its response head. In addition, each attempt has
    /// a minute from its sending to its response head: see
    /// [`Builder::response_timeout`](crate::Builder::response_timeout).
    ///
    /// # Examples
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # async fn run(client: tower_tds::Client) -> Result<(), tower_tds::Error> {
    /// let bus = client.get("/v1/live/bus").deadline(Duration::from_secs(2)).await?;
    /// println!("{}", bus.text().await?); // within the same two seconds
    /// # Ok(())
    /// # }
    /// ```
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Adds a parameter to the query, percent-encoded. Call it once for each parameter.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn run(client: tower_tds::Client) -> Result<(), tower_tds::Error> {
    /// let stops = client
    ///     .get("/v1/stops")
    ///     .query("$filter", "name eq 'Zürich & Umgebung'")
    ///     .query("$top", 50)
    ///     .await?;
    /// # drop(stops);
    /// # Ok(())
    /// # }
    /// ```
    pub fn query(mut self, name: &str, value: impl Display) -> Self {
        let add = |mut request: Request<RequestBody>| {
            *request.uri_mut() = with_query(request.uri(), name, &value.to_string())?;
            Ok(request)
        };
        self.request = self.request.and_then(add);
        self
    }

    /// Sets a header of the request.
    ///
    /// Headers of the connection, such as `Transfer-Encoding` and `Upgrade`, are dropped,
    /// because the client sets its own. If you set a `Content-Length`, it has to be that of the
    /// body.
    pub fn header<N, V>(mut self, name: N, value: V) -> Self
    where
        N: TryInto<HeaderName, Error: Into<BoxError>>,
        V: TryInto<HeaderValue, Error: Into<BoxError>>,
    {
        let set = |mut request: Request<RequestBody>| {
            let name = name.try_into().map_err(unusable)?;
            let value = value.try_into().map_err(unusable)?;
            request.headers_mut().insert(name, value);
            Ok(request)
        };
        self.request = self.request.and_then(set);
        self
    }
}

impl IntoFuture for Call {
    type Output = Result<Response, Error>;
    type IntoFuture = CallFuture<Response>;

    fn into_future(self) -> CallFuture<Response> {
        self.sender.send(self.request, self.deadline)
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Query and headers may be secret.
        let mut call = f.debug_struct("Call");
        match &self.request {
            Ok(request) => call.field("method", request.method()),
            Err(error) => call.field("error", error),
        };
        call.finish_non_exhaustive()
    }
}

fn unusable(error: impl Into<BoxError>) -> Error {
    let error = Error::new(Kind::InvalidRequest, error);
    error.with_advice("correct the header that was given to the call")
}
