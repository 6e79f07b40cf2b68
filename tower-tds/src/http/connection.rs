//! One connection over HTTP/1.1: its task, which connects, drives it and puts it back, and its use by a call.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, Weak},
    task::{Poll, Waker},
    time::Duration,
};

use futures_util::future::{Either, select};
use http_body::Body;
use hyper::{
    client::conn::http1::{self, SendRequest},
    rt::{Read, Write},
};
use hyper_util::client::legacy::connect::Connection;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep_until},
};
use tower::BoxError;
use tower_tds_errors::{Error, Kind, Sent};

use crate::http::pool::{AtHome, Home, Idle, Pool, Waits, lock};

/// A connection in use. Its drop puts it back, or hands it over to its task, which does so as soon as it is ready.
pub(super) struct InUse<B> {
    /// Present until the drop.
    pub(super) sender: Option<SendRequest<B>>,
    pub(super) home: Home<B>,
    pub(super) pool: Weak<Pool<B>>,
    pub(super) is_reused: bool,
}

/// Wait for a response head. If it is dropped before that, idle connections may be dead as well.
pub(super) struct HeadWait<'a, B> {
    pool: &'a Pool<B>,
    connection: &'a Mutex<AtHome<B>>,
    sent_at: Instant,
    /// Also set for a request that was not written, because that shows nothing.
    pub(super) is_over: bool,
}

// === impl HeadWait ===

impl<'a, B> HeadWait<'a, B> {
    pub(super) fn begin(
        pool: &'a Pool<B>,
        connection: &'a Mutex<AtHome<B>>,
        is_reused: bool,
    ) -> Self {
        let sent_at = Instant::now();
        // The task of the connection sees it as soon as the request wakes it.
        lock(connection).waits = is_reused.then(|| Waits {
            since: sent_at,
            until: sent_at + pool.longest_wait(),
        });
        Self {
            pool,
            connection,
            sent_at,
            is_over: false,
        }
    }

    /// Ends the wait with a response.
    pub(super) fn end(mut self) {
        self.pool.learn(self.sent_at.elapsed());
        self.is_over = true;
    }
}

impl<B> Drop for HeadWait<'_, B> {
    fn drop(&mut self) {
        lock(self.connection).waits = None;
        if !self.is_over {
            self.pool.close_idle(self.sent_at);
        }
    }
}

// === impl InUse ===

impl<B> InUse<B> {
    pub(super) fn of(pool: &Arc<Pool<B>>, idle: Idle<B>) -> Self {
        Self {
            sender: Some(idle.sender),
            home: idle.home,
            pool: Arc::downgrade(pool),
            is_reused: true,
        }
    }
}

impl<B> Drop for InUse<B> {
    fn drop(&mut self) {
        let Some(sender) = self.sender.take() else {
            return;
        };
        if sender.is_ready()
            && let Some(pool) = self.pool.upgrade()
        {
            return pool.put(sender, Arc::clone(&self.home));
        }
        let mut home = lock(&self.home);
        home.sender = Some(sender);
        let task = home.task.take();
        drop(home);
        task.into_iter().for_each(Waker::wake);
    }
}

/// Task of a connection: connects, gives the connection to its call, and from then on drives it
/// and puts it back after each call.
pub(super) async fn connection<B, T>(
    connecting: impl Future<Output = Result<T, BoxError>>,
    mut caller: oneshot::Sender<Result<InUse<B>, BoxError>>,
    pool: Weak<Pool<B>>,
    open: Option<watch::Receiver<()>>,
) where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
    T: Read + Write + Connection + Send + Unpin + 'static,
{
    let ended = async {
        caller.closed().await;
        if let Some(mut open) = open {
            // An error, because nothing is ever sent.
            drop(open.changed().await);
        }
    };
    let connected = match select(pin!(handshake(connecting)), pin!(ended)).await {
        Either::Left((connected, _)) => connected,
        Either::Right(_) => return,
    };
    let (sender, connection) = match connected {
        Ok(connected) => connected,
        Err(error) => return drop(caller.send(Err(error))),
    };
    let home = Arc::new(Mutex::new(AtHome {
        sender: None,
        task: None,
        idle_since: Instant::now(),
        waits: None,
    }));
    // If the call has gone, the drop hands the connection over to this task.
    drop(caller.send(Ok(InUse {
        sender: Some(sender),
        home: Arc::clone(&home),
        pool: Weak::clone(&pool),
        is_reused: false,
    })));
    let mut connection = pin!(connection);
    let mut wakes = pin!(sleep_until(Instant::now() + IDLE_TIMEOUT));
    let (mut last, mut is_set) = (None, false);
    let driven = poll_fn(|cx| {
        // Polled first, because only then its sender can be ready again.
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut at_home = lock(&home);
        last = at_home.sender.take().or(last.take());
        let is_known = |task: &Waker| task.will_wake(cx.waker());
        if !at_home.task.as_ref().is_some_and(is_known) {
            at_home.task = Some(cx.waker().clone());
        }
        let (since, waits) = (at_home.idle_since, at_home.waits);
        drop(at_home);
        if let Some(mut sender) = last.take() {
            match SendRequest::poll_ready(&mut sender, cx) {
                // Without its sender the connection ends.
                Poll::Ready(Err(_)) => {}
                Poll::Ready(Ok(())) => {
                    if let Some(pool) = pool.upgrade() {
                        pool.put(sender, Arc::clone(&home));
                    }
                }
                Poll::Pending => last = Some(sender),
            }
        }
        // Set again only for an earlier time, because a timer that comes too early costs less than
        // one that is set for each call.
        if let Some(waits) = waits.filter(|waits| waits.until < wakes.deadline()) {
            wakes.as_mut().reset(waits.until);
            is_set = false;
        }
        while !is_set || wakes.is_elapsed() {
            is_set = wakes.as_mut().poll(cx).is_pending();
            if is_set {
                break;
            }
            let now = Instant::now();
            let (mut then, mut next) = (now.checked_sub(IDLE_TIMEOUT), since + IDLE_TIMEOUT);
            if let Some(waits) = waits {
                next = waits.until;
                if next <= now {
                    then = Some(waits.since);
                    lock(&home).waits = None;
                }
            }
            if let (Some(pool), Some(then)) = (pool.upgrade(), then) {
                pool.close_idle(then);
            }
            wakes
                .as_mut()
                .reset(if next > now { next } else { now + IDLE_TIMEOUT });
        }
        Poll::Pending
    });
    driven.await;
}

/// Connects, and prepares the connection for requests.
async fn handshake<B, T>(
    connecting: impl Future<Output = Result<T, BoxError>>,
) -> Result<(SendRequest<B>, http1::Connection<T, B>), BoxError>
where
    B: Body<Data: Send, Error: Into<BoxError>> + 'static,
    T: Read + Write + Connection + Unpin,
{
    let socket = connecting.await?;
    // Called after the handshake of TLS: the limit counts a socket as used from its next write.
    if socket.connected().is_negotiated_h2() {
        let error = Error::new(Kind::Rejected, "the connector has negotiated HTTP/2");
        let error = error.with_sent(Sent::Never).with_advice(NO_H2);
        return Err(error.into());
    }
    let mut http = http1::Builder::new();
    // RFC 9112, section 5.2: a fold in a head is read as a space.
    http.allow_obsolete_multiline_headers_in_responses(true);
    Ok(http.handshake(socket).await?)
}

/// Shorter than the 60 to 75 s of gateways, so that this side closes first, and no request is sent
/// on a closing socket.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

const NO_H2: &str =
    "leave h2 out of its ALPN protocols, or put TdsLayer over a client that speaks HTTP/2";
