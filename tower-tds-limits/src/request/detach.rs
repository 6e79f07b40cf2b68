//! A call that goes on when its caller has gone.

use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Buf;
use http::Response;
use http_body::Body;
use tokio::{runtime::Handle, time::timeout};
use tower_layer::Layer;
use tower_service::Service;

/// Puts [`Detach`] around a service; an example is there.
#[derive(Debug, Clone, Copy, Default)]
pub struct DetachLayer;

/// Lets a call run to its answer in the background when its caller drops it.
///
/// Put it around [`RequestLimit`](crate::RequestLimit) where callers hang up. A request that was
/// sent can be counted by the service until it has answered. If the answer is never seen, the
/// permit is live for [`Limits::lost_after`](crate::Limits::lost_after) and the interval: with
/// callers of whom half hang up that leaves 2 requests a second of 37. Seen to its end, the
/// request costs what any other costs, its connection stays, and the rate is that of patient
/// callers, 37 a second. (Measured under paused time, answers after 300 ms:
/// `cargo test -p tower-tds-limits --test requests half_of -- --nocapture`.)
///
/// The call is let go after ten seconds, or when 256 KiB of its body have come. Its permit in flight is
/// held until then. Only what can have been sent goes on. What was not polled once is dropped as it
/// is, and so is what has panicked, what waits for a moment to send, and what waits for a connection
/// through a [`ConnectionLimit`](crate::ConnectionLimit): nothing is sent for a caller who has gone.
/// (Of a connection that another call or task makes it is known if the
/// client says so by [`held`].)
///
/// # Backpressure
/// Readiness is the inner service's own. Calls without a caller keep their places, so that those
/// who come after them wait as behind any other.
///
/// # Cancel safety
/// Dropping the future spawns what is left of it, on the runtime that drops it. Outside a
/// runtime it is dropped.
///
/// # Clone
/// As the inner service's.
///
/// # Errors
/// The inner service's own.
///
/// # Examples
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_tds_limits::{DetachLayer, Limiter, Limits, RequestLimitLayer};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let limiter = Limiter::new(Limits::default());
/// let service = ServiceBuilder::new()
///     .layer(DetachLayer)
///     .layer(RequestLimitLayer::new(limiter))
///     // `Detach` moves the future, so that it must be `Unpin`; that of hyper's client is.
///     .map_future(Box::pin)
///     .service(service_fn(async |_request: Request<String>| {
///         Ok::<_, Infallible>(Response::new(String::from("bus 307")))
///     }));
/// let response = service.oneshot(Request::new(String::new())).await;
/// # assert!(response.is_ok());
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Detach<S> {
    inner: S,
}

/// The response of a [`Detach`].
///
/// # Cancel safety
/// See [`Detach`].
#[derive(Debug)]
pub struct DetachFuture<F> {
    /// `None` once it is ready.
    call: Option<F>,
    /// Whether it was polled, and can be polled again: not before its first poll, and not within
    /// one, which may panic.
    waits: bool,
    /// Whether it waits for something without which it is not sent.
    is_held: bool,
    /// Goes on without a caller: what is known of it where it is made.
    go_on: fn(F),
}

// === impl DetachLayer ===

impl<S> Layer<S> for DetachLayer {
    type Service = Detach<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Detach { inner }
    }
}

// === impl Detach ===

impl<S, Request, B> Service<Request> for Detach<S>
where
    S: Service<Request, Response = Response<B>, Error: Send + 'static>,
    S::Future: Send + Unpin + 'static,
    B: Body<Data: Buf + Send, Error: Send> + Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = DetachFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        DetachFuture {
            call: Some(self.inner.call(request)),
            waits: false,
            is_held: false,
            go_on: |call| {
                if let Ok(runtime) = Handle::try_current() {
                    drop(runtime.spawn(async move {
                        // However it ends, nobody waits for it.
                        let _ended: Result<(), _> = timeout(LONGEST, see_to_its_end(call)).await;
                    }));
                }
            },
        }
    }
}

// === impl DetachFuture ===

impl<F: Future + Unpin> Future for DetachFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(call) = &mut this.call else {
            // Polled after it was ready, which a future's contract leaves open.
            return Poll::Pending;
        };
        this.waits = false;
        HELD.set(None);
        let polled = Pin::new(call).poll(cx);
        this.is_held = HELD.get().unwrap_or(this.is_held);
        if polled.is_ready() {
            this.call = None;
        } else {
            this.waits = true;
        }
        polled
    }
}

impl<F> Drop for DetachFuture<F> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take()
            && self.waits
            && !self.is_held
        {
            (self.go_on)(call);
        }
    }
}

/// Says of the call that this thread polls whether it waits for something without which it is not sent.
///
/// [`Detach`] lets go of such a call. A [`ConnectionLimit`](crate::ConnectionLimit) says it by itself; another client
/// may say it, in the polls of its responses, while it has no connection. What was said last in a poll holds, and until
/// something else is said in a later one.
pub fn held(is_held: bool) {
    HELD.set(Some(is_held));
}

thread_local! {
    /// What was said last in the poll that is going on. A pool makes its connections in the polls of the
    /// call that needs one, and nothing else tells which call that is.
    static HELD: Cell<Option<bool>> = const { Cell::new(None) };
}

async fn see_to_its_end<B: Body<Data: Buf>, E>(call: impl Future<Output = Result<Response<B>, E>>) {
    let Ok(response) = call.await else {
        return;
    };
    let mut body = std::pin::pin!(response.into_body());
    let mut left = MOST;
    while let Some(Ok(frame)) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let came = frame.data_ref().map_or(0, Buf::remaining);
        let Some(rest) = left.checked_sub(came) else {
            return;
        };
        left = rest;
    }
}

/// As long as a lost request counts by default ([`Limits::lost_after`](crate::Limits::lost_after)): after a hang
/// of the service its place is back by then. The permit of one that is let go counts as lost from then on.
const LONGEST: Duration = Duration::from_secs(10);

/// Reading this much costs less than a new connection and its handshake.
const MOST: usize = 256 * 1024;
