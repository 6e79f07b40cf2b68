use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};

use http::{Response, StatusCode, Version};

use super::{Exchange, Handle};
use crate::{
    Limiter, Limits,
    connection::{
        permit::{ConnectionPermit, Place, wake},
        sockets::Connections,
        usage::Rest,
    },
    queue::{Limit, Queue},
};

/// A socket whose connection has been made, and the pool's own handle to it.
struct Socket {
    queue: Arc<Queue<Connections>>,
    place: Place,
    pooled: Handle,
    _permit: ConnectionPermit,
}

/// How often somebody was woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

// === impl Socket ===

impl Socket {
    fn open() -> Self {
        let limiter = Limiter::new(Limits::default().connections(NonZeroU32::MIN));
        let queue = Arc::clone(&limiter.credential.connections);
        queue.update_now(|connections, now| connections.admit(now));
        let mut permit = ConnectionPermit::connecting(&queue);
        let place = permit.opened(Rest::Doubtful);
        // As the handshake of TLS.
        place.told(|usage| usage.wrote(false));
        place.told(|usage| usage.made(false));
        Self {
            queue,
            pooled: Handle::of(place.clone()),
            place,
            _permit: permit,
        }
    }

    fn rest(&self) -> Option<Rest> {
        self.place.told(|usage| usage.rest()).flatten()
    }

    fn wrote(&self, blocked: bool) {
        self.place.told(|usage| usage.wrote(blocked));
    }

    /// Whether it leaves when somebody has waited for ten seconds.
    fn makes_room(&self) -> bool {
        let long = Duration::from_secs(10);
        self.queue
            .update_now(|connections, now| connections.waits(1, now + long));
        self.leaves()
    }

    fn leaves(&self) -> bool {
        self.place.is_to_leave(&mut None, Waker::noop())
    }

    /// A response as a pool gives it out.
    fn response(&self, status: StatusCode, version: Version) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = status;
        *response.version_mut() = version;
        response.extensions_mut().insert(self.pooled.clone());
        response
    }

    fn answer(&self, status: StatusCode, version: Version) -> Exchange {
        Exchange::begin(&mut self.response(status, version)).expect("a handle")
    }

    fn ok(&self) -> Exchange {
        self.answer(StatusCode::OK, Version::HTTP_11)
    }
}

#[tokio::test]
async fn a_socket_is_free_from_the_end_of_its_answer_to_its_next_request() {
    let socket = Socket::open();
    assert_eq!(socket.rest(), Some(Rest::Doubtful), "a request may come");
    for _ in 0..3 {
        socket.wrote(false);
        assert_eq!(socket.rest(), None, "a head is awaited");
        let answer = socket.ok();
        assert_eq!(socket.rest(), None, "a body is awaited");
        drop(answer);
        assert_eq!(socket.rest(), Some(Rest::Free));
    }
}

#[tokio::test]
async fn a_socket_that_carries_the_next_request_already_is_not_free_at_the_end_of_an_answer() {
    let socket = Socket::open();
    socket.wrote(false);
    // The pool gave the response out, and the socket to the next request, before anybody knew.
    let mut response = socket.response(StatusCode::OK, Version::HTTP_11);
    socket.wrote(false);
    drop(Exchange::begin(&mut response));
    assert_eq!(socket.rest(), None);
    drop(socket.ok());
    assert_eq!(socket.rest(), Some(Rest::Free));
    // Heads that are told in the wrong order.
    socket.wrote(false);
    let mut first = socket.response(StatusCode::OK, Version::HTTP_11);
    socket.wrote(false);
    let second = socket.ok();
    let first = Exchange::begin(&mut first);
    drop((second, first));
    assert_eq!(socket.rest(), Some(Rest::Free));
}

#[tokio::test]
async fn a_request_that_comes_first_takes_back_that_the_socket_shall_leave() {
    let socket = Socket::open();
    socket.wrote(false);
    drop(socket.ok());
    assert!(socket.makes_room());
    socket.wrote(false);
    assert!(!socket.leaves());
    assert!(!socket.makes_room());
    drop(socket.ok());
    assert!(socket.makes_room());
    assert!(socket.leaves());
}

/// Between two looks nobody takes the lock for it: whatever it is asked has to reach it all the same.
#[tokio::test]
async fn a_reader_that_is_known_is_woken_and_told_each_time_that_its_socket_is_to_leave() {
    let socket = Socket::open();
    let mut known = None;
    let (mut woken, waker) = (0, Arc::new(Count::default()));
    for _ in 0..3 {
        let reader = Waker::from(Arc::clone(&waker));
        socket.wrote(false);
        assert!(!socket.place.is_to_leave(&mut known, &reader));
        drop(socket.ok());
        // Its pool reads on while it is idle.
        assert!(!socket.place.is_to_leave(&mut known, &reader));
        let long = Duration::from_secs(10);
        let waits = |connections: &mut Connections, now| connections.waits(1, now + long);
        wake(socket.queue.update_now(waits));
        woken += 1;
        assert_eq!(waker.0.load(Ordering::Relaxed), woken);
        // A request comes first, and takes it back before the reader looks.
        socket.wrote(false);
        assert!(!socket.place.is_to_leave(&mut known, &reader));
        drop(socket.ok());
        wake(socket.queue.update_now(waits));
        woken += 1;
        assert_eq!(waker.0.load(Ordering::Relaxed), woken);
        assert!(socket.place.is_to_leave(&mut known, &reader));
    }
}

#[tokio::test]
async fn an_upload_that_is_stuck_although_it_is_answered_is_doubtful() {
    let socket = Socket::open();
    socket.wrote(false);
    socket.wrote(true);
    drop(socket.ok());
    assert_eq!(socket.rest(), Some(Rest::Doubtful));
    // It, or the next request, goes on.
    socket.wrote(false);
    assert_eq!(socket.rest(), None);
    // Stuck after the head: nobody can tell whose that is.
    drop(socket.ok());
    assert_eq!(socket.rest(), Some(Rest::Free));
    socket.wrote(true);
    assert_eq!(socket.rest(), None);
}

#[tokio::test]
async fn a_socket_of_http2_is_never_free() {
    let socket = Socket::open();
    drop(socket.answer(StatusCode::OK, Version::HTTP_2));
    assert_eq!(socket.rest(), None);
}

#[tokio::test]
async fn a_socket_of_another_protocol_is_never_free() {
    let socket = Socket::open();
    socket.wrote(false);
    drop(socket.answer(StatusCode::SWITCHING_PROTOCOLS, Version::HTTP_11));
    assert_eq!(socket.rest(), None);
    drop(socket.ok());
    assert_eq!(socket.rest(), None);
}

#[tokio::test]
async fn an_answer_is_told_once_however_many_layers_see_it() {
    let socket = Socket::open();
    let mut response = socket.response(StatusCode::OK, Version::HTTP_11);
    let inner = Exchange::begin(&mut response);
    assert!(inner.is_some());
    assert!(Exchange::begin(&mut response).is_none());
}
