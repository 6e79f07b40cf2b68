//! A call that was passed on, until its response head: whether it was sent, and its completion in
//! the background.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    thread::{self, ThreadId},
    time::Duration,
};

use bytes::Buf;
use http::{Extensions, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};
use tower_tds_outcome::ReadOutcome;

use super::{
    layer::Settings,
    permit::{PermitBody, RequestPermit},
};
use crate::{
    clock,
    error::{BoxError, Error},
};

pin_project! {
    /// Call that was passed on, until its response head.
    pub(super) struct SentCall<S> {
        // `None` while it is dropped.
        #[pin]
        pub(super) response: Option<S>,
        // `None` once the response is there.
        pub(super) permit: Option<RequestPermit>,
        // `None` if nothing shows whether the request was sent.
        pub(super) watch: Option<Watch>,
        pub(super) called_at: Instant,
        pub(super) deadline: Option<Instant>,
    }
}

/// Shows whether the head of a request was written or dropped unsent, over hyper's HTTP/1 client.
///
/// A guard in the request's extensions records this, because such a connection drops them when it
/// has written the head. If a call is dropped while its request waits for a connection, the
/// extensions are dropped as well, on the same thread. Only this case means *unsent*: if another
/// thread drops them, a connection may be writing the head.
#[derive(Debug, Clone)]
pub(super) struct Watch(Arc<Mutex<Head>>);

/// Guard in the extensions of a request, which records its own drop.
#[derive(Debug)]
struct Guard(Watch);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    // ## Held => (Sent | Unsent)
    Held {
        /// Whether the time at which it is sent is wanted.
        is_timed: bool,
        /// Thread that drops the call, if one does.
        dropped_by: Option<ThreadId>,
    },
    Sent(Option<Instant>),
    Unsent,
}

/// Function that completes an abandoned call in the background.
pub(super) type Complete<S, F> = fn(Pin<&mut SentCall<S>>, &Arc<Settings<F>>);

// === impl SentCall ===

impl<S> SentCall<S> {
    /// Waits for the response head, and reads its outcome.
    #[inline]
    pub(super) fn poll<F, B, E>(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        reader: &F,
    ) -> Poll<Result<Response<PermitBody<B>>, Error>>
    where
        S: Future<Output = Result<Response<B>, E>>,
        E: Into<BoxError>,
        F: ReadOutcome,
        B: Body,
    {
        let this = self.project();
        let Some(response) = this.response.as_pin_mut() else {
            return Poll::Pending;
        };
        let response: Result<_, BoxError> = ready!(response.poll(cx)).map_err(Into::into);
        let (outcome, is_whole) = match &response {
            Ok(response) => (reader.read(Ok(response)), response.body().is_end_stream()),
            Err(error) => (reader.read::<B>(Err(&**error)), true),
        };
        let permit = this
            .permit
            .take_if(|permit| permit.record(outcome, is_whole));
        // Drops a permit that the body does not hold.
        *this.permit = None;
        let held = |body| PermitBody::new(body, permit);
        Poll::Ready(match response {
            Ok(response) => Ok(response.map(held)),
            Err(error) => Err(Error::below(error)),
        })
    }

    /// Whether the request may not have been sent yet.
    pub(super) fn is_held(&self) -> bool {
        self.watch.as_ref().is_none_or(Watch::is_held)
    }

    /// When the request was sent, as far as that is known.
    ///
    /// A request that is not sent yet is checked again one timeout from now. Even if it is sent now,
    /// it has not waited longer than the timeout then.
    pub(super) fn sent_at(&self) -> Instant {
        let watch = self.watch.as_ref();
        watch.map_or(self.called_at, |watch| {
            watch.sent_at().unwrap_or_else(clock::now)
        })
    }

    /// Drops the call, unless it has its response. Its permit is free at once if it is known to be
    /// unsent.
    pub(super) fn abandon(self: Pin<&mut Self>) {
        let mut this = self.project();
        let Some(mut permit) = this.permit.take() else {
            return;
        };
        let response = &mut this.response;
        match this.watch {
            Some(watch) => {
                if watch.drop_call(|| response.set(None)) {
                    permit.withdraw();
                }
            }
            None => response.set(None),
        }
    }

    /// Spawns the rest of a call that may have been sent, and abandons one that was not.
    pub(super) fn complete<F, B, E>(mut self: Pin<&mut Self>, settings: &Arc<Settings<F>>)
    where
        S: Future<Output = Result<Response<B>, E>> + Send + Unpin + 'static,
        F: ReadOutcome + Send + Sync + 'static,
        B: Body<Data: Buf + Send, Error: Send> + Send + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        if self.permit.is_none() || self.watch.as_ref().is_some_and(Watch::is_held) {
            return self.abandon();
        }
        let rest = Self {
            response: self.response.take(),
            permit: self.permit.take(),
            watch: self.watch.clone(),
            called_at: self.called_at,
            deadline: self.deadline,
        };
        if let Ok(runtime) = Handle::try_current() {
            let rest = read_to_end(rest, Arc::clone(settings));
            drop(runtime.spawn(timeout(LONGEST, rest)));
        }
    }
}

// === impl Watch ===

impl Watch {
    /// Puts a guard into the extensions of a request.
    pub(super) fn insert(extensions: &mut Extensions, is_timed: bool) -> Self {
        let head = Head::Held {
            is_timed,
            dropped_by: None,
        };
        let watch = Self(Arc::new(Mutex::new(head)));
        extensions.insert(Guard(watch.clone()));
        watch
    }

    /// When the head was sent, if it was and the time is wanted.
    pub(super) fn sent_at(&self) -> Option<Instant> {
        match *self.head() {
            Head::Sent(at) => at,
            Head::Held { .. } | Head::Unsent => None,
        }
    }

    /// Whether the head was neither written nor dropped.
    pub(super) fn is_held(&self) -> bool {
        matches!(*self.head(), Head::Held { .. })
    }

    /// Whether the request is known to be unsent.
    pub(super) fn is_unsent(&self) -> bool {
        *self.head() == Head::Unsent
    }

    /// Drops the call by `drop_call`. Returns whether its request is known to be unsent.
    pub(super) fn drop_call(&self, drop_call: impl FnOnce()) -> bool {
        if let Head::Held { dropped_by, .. } = &mut *self.head() {
            *dropped_by = Some(thread::current().id());
        }
        drop_call();
        self.is_unsent()
    }

    /// Records the end of the head: sent, unless the thread that drops the call dropped it.
    fn end(&self, is_copied: bool) {
        let mut head = self.head();
        if let Head::Held {
            is_timed,
            dropped_by,
        } = *head
        {
            let is_dropped =
                !is_copied && dropped_by.is_some_and(|by| by == thread::current().id());
            *head = if is_dropped {
                Head::Unsent
            } else {
                Head::Sent(is_timed.then(clock::now))
            };
        }
    }

    fn head(&self) -> MutexGuard<'_, Head> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Guard ===

/// A request that is copied counts as sent, because the copy can be sent at any time.
impl Clone for Guard {
    fn clone(&self) -> Self {
        self.0.end(true);
        Self(self.0.clone())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.end(false);
    }
}

/// Reads a response to its end, within [`MOST`].
async fn read_to_end<S, F, B, E>(mut call: SentCall<S>, settings: Arc<Settings<F>>)
where
    S: Future<Output = Result<Response<B>, E>> + Unpin,
    E: Into<BoxError>,
    F: ReadOutcome,
    B: Body<Data: Buf>,
{
    let response = poll_fn(|cx| Pin::new(&mut call).poll(cx, &settings.reader));
    let Ok(response) = response.await else {
        return;
    };
    let mut body = pin!(response.into_body());
    let mut left = MOST;
    while let Some(Ok(frame)) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let length = frame.data_ref().map_or(0, Buf::remaining);
        let Some(rest) = left.checked_sub(length) else {
            return;
        };
        left = rest;
    }
}

/// Default of [`Limits::lost_after`](crate::Limits::lost_after), beyond which completing a call
/// gains nothing.
const LONGEST: Duration = Duration::from_secs(10);

/// Reading this much costs less time than a new connection and its handshake.
const MOST: usize = 256 * 1024;
