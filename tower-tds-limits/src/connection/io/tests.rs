use std::{collections::VecDeque, num::NonZeroU32, time::Duration};

use tokio::time::{Instant, sleep};
use tokio_test::task;

use super::*;
use crate::limits::{Limits, Quota, Rules, Share};

/// Result of a socket's next read: an error, its end, or nothing yet.
type Step = Option<Result<(), ErrorKind>>;

/// A socket with a script. After its script it is at its end.
#[derive(Debug)]
struct Scripted {
    reads: VecDeque<Step>,
    write: Result<usize, ErrorKind>,
    shutdown: Result<(), ErrorKind>,
}

impl Read for Scripted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.reads.pop_front() {
            Some(None) => Poll::Pending,
            Some(Some(read)) => Poll::Ready(read.map_err(Into::into)),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl Write for Scripted {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.write.map_err(Into::into))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown.map_err(Into::into))
    }
}

impl Connection for Scripted {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// A socket whose server sends nothing, and ends when this side does.
#[derive(Debug, Default)]
struct Quiet {
    has_ended: bool,
}

impl Read for Quiet {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.has_ended {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }
}

impl Write for Quiet {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(0))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.has_ended = true;
        Poll::Ready(Ok(()))
    }
}

/// Where the error shows.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// The error shows while the client reads.
    Read,
    /// The error shows while the client writes.
    Write,
    /// The error shows only after the client has dropped the socket.
    Close,
    /// The error shows after the drop, and the close of this side also fails.
    ShutDown,
}

fn limiter() -> Limiter {
    let quota = Quota::per_second(NonZeroU32::MIN.saturating_add(49));
    Limiter::new(Limits::new(quota).rules(Rules::window()))
}

fn open<T>(limiter: &Limiter, socket: T) -> LimitedIo<T>
where
    T: Read + Write + Send + Unpin + 'static,
{
    let connections = &limiter.stack.connections;
    let line = connections.update_now(|connections, now| connections.admit(Line::Back, now));
    LimitedIo::new(socket, ConnectionPermit::new(connections, line), limiter)
}

/// Breaks a socket that has carried a request, and returns the seconds until its permit is back.
async fn permit_is_back_after(kind: ErrorKind, place: Place) -> u64 {
    let limiter = limiter();
    let error = || Some(Err(kind));
    let mut socket = Scripted {
        reads: VecDeque::new(),
        write: Ok(1_000),
        shutdown: Ok(()),
    };
    match place {
        Place::Read | Place::Close => socket.reads.push_back(error()),
        Place::Write => socket.write = Err(kind),
        Place::ShutDown => {
            socket.shutdown = Err(ErrorKind::NotConnected);
            socket.reads.push_back(error());
        }
    }
    let mut io = open(&limiter, socket);
    let mut poll = task::spawn(());
    poll.enter(|cx, _| {
        let mut buf = [0; 8];
        let mut buf = ReadBuf::new(&mut buf);
        if let Place::Read = place {
            assert!(Pin::new(&mut io).poll_read(cx, buf.unfilled()).is_ready());
        }
        assert!(Pin::new(&mut io).poll_write(cx, b"GET").is_ready());
    });
    // A failed write leaves the socket unused. Only the permit of the connection matters here.
    if let Some(open) = &mut io.open {
        *open.is_used.get_mut() = true;
    }
    let before = Instant::now();
    drop(io);
    while limiter.snapshot().connections > 0 {
        sleep(Duration::from_millis(10)).await;
    }
    before.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn no_read_after_a_cut_is_the_end_of_the_server() {
    let cuts = [
        ErrorKind::TimedOut,
        ErrorKind::HostUnreachable,
        ErrorKind::NetworkUnreachable,
        ErrorKind::NetworkDown,
        ErrorKind::ConnectionAborted,
        ErrorKind::Other,
    ];
    for place in [Place::Read, Place::Write, Place::Close, Place::ShutDown] {
        for kind in cuts {
            assert_eq!(
                permit_is_back_after(kind, place).await,
                30,
                "{kind} {place:?}"
            );
        }
        let reset = permit_is_back_after(ErrorKind::ConnectionReset, place).await;
        assert_eq!(reset, 0, "{place:?}");
        let ended = permit_is_back_after(ErrorKind::BrokenPipe, place).await;
        assert_eq!(ended, 1, "{place:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_after_a_cut_proves_nothing() {
    let limiter = limiter();
    let cut = [ErrorKind::TimedOut, ErrorKind::ConnectionReset];
    let io = open(
        &limiter,
        Scripted {
            reads: cut.map(|kind| Some(Err(kind))).into(),
            write: Ok(0),
            shutdown: Ok(()),
        },
    );
    drop(io);
    sleep(Duration::from_secs(29)).await;
    let snapshot = limiter.snapshot();
    // The server may count its close until then as well.
    assert_eq!((snapshot.connections, snapshot.live), (1, 1));
    sleep(Duration::from_secs(3)).await;
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.connections, snapshot.live), (0, 0));
}

/// Writes before and after the handshake, shuts the socket down, and drops it. Returns how many
/// requests the limiter has counted.
async fn counted(before: Option<&[u8]>, after: &[u8]) -> u64 {
    let limiter = limiter();
    let mut io = open(
        &limiter,
        Scripted {
            reads: VecDeque::new(),
            write: Ok(0),
            shutdown: Ok(()),
        },
    );
    let write = |io: &mut LimitedIo<Scripted>, bytes: &[u8]| {
        io.open.as_mut().expect("it is open").socket.write = Ok(bytes.len());
        let wrote = task::spawn(()).enter(|cx, _| Pin::new(&mut *io).poll_write(cx, bytes));
        assert!(matches!(wrote, Poll::Ready(Ok(wrote)) if wrote == bytes.len()));
    };
    if let Some(bytes) = before {
        write(&mut io, bytes);
        let _connected = io.connected();
    }
    write(&mut io, after);
    drop(io);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(limiter.snapshot().in_flight, 0);
    limiter.snapshot().granted
}

/// A record of TLS with this type and length.
fn record(kind: u8, length: u8) -> Vec<u8> {
    let head = [kind, 3, 3, 0, length];
    [&head[..], &vec![0; length.into()]].concat()
}

#[tokio::test(start_paused = true)]
async fn socket_that_carried_no_request_is_counted_when_it_closes() {
    // A handshake, and then nothing or a `close_notify` of TLS 1.3, or of TLS 1.2 with several ciphers.
    let hello = record(22, 200);
    let notifies = [vec![], record(23, 19), record(21, 26), record(21, 64)];
    for notify in notifies {
        assert_eq!(counted(Some(&hello), &notify).await, 1, "{notify:?}");
        assert_eq!(counted(Some(b""), &notify).await, 1, "{notify:?}");
        assert_eq!(counted(None, &notify).await, 1, "{notify:?}");
    }
    // The shortest request, plain and over TLS 1.3, and a client that does not call `connected`.
    let shortest = b"GET / HTTP/1.1\r\n\r\n";
    assert_eq!(counted(Some(&hello), shortest).await, 0);
    assert_eq!(counted(Some(&hello), &record(23, 18 + 17)).await, 0);
    assert_eq!(counted(None, &hello).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_unused_sockets_closes_at_the_rate_of_the_quota() {
    let limiter = limiter();
    let idle = |reads: &[Step]| Scripted {
        reads: reads.iter().copied().collect(),
        write: Ok(0),
        shutdown: Ok(()),
    };
    // Each waits for a permit, and then its server ends at once.
    let sockets: Vec<_> = (0..59).map(|_| open(&limiter, idle(&[None; 1]))).collect();
    drop(sockets);
    sleep(Duration::from_millis(1)).await;
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.granted, snapshot.live), (50, 50));
    // Sockets that wait for the permit of a request keep that of their connection.
    assert_eq!((snapshot.connections, snapshot.in_flight), (59, 0));
    limiter.idle().await;
    sleep(Duration::from_millis(1_010)).await;
    assert_eq!(limiter.snapshot().granted, 59);
    sleep(Duration::from_secs(3)).await;
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.connections, snapshot.live), (0, 0));
    assert_eq!(snapshot.certificate, 50);
}

#[test]
fn unused_socket_that_is_dropped_outside_of_a_runtime_is_counted() {
    let limiter = limiter();
    let io = open(
        &limiter,
        Scripted {
            reads: VecDeque::new(),
            write: Ok(0),
            shutdown: Ok(()),
        },
    );
    drop(io);
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.granted, snapshot.in_flight), (1, 0));
    assert_eq!((snapshot.connections, snapshot.live), (1, 1));
}

/// A share may end for a moment, so that a pool closes its idle sockets, or until the store is back.
#[tokio::test(start_paused = true)]
async fn unused_sockets_wait_for_the_next_share_and_close_within_it() {
    let (limiter, now) = (limiter(), Instant::now());
    let shares = crate::share::Shares::of(&limiter);
    let one = Share::default().requests(1).places(1).connections(3);
    shares.set(one, now + Duration::from_secs(60));
    let sockets: Vec<_> = (0..3).map(|_| open(&limiter, Quiet::default())).collect();
    shares.set(Share::default(), now);
    drop(sockets);
    sleep(Duration::from_secs(20)).await;
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.granted, snapshot.connections), (0, 3));
    shares.set(one, now + Duration::from_secs(60));
    for granted in 1..=3 {
        sleep(Duration::from_millis(500)).await;
        assert_eq!(limiter.snapshot().granted, granted);
        sleep(Duration::from_millis(503)).await;
    }
    sleep(Duration::from_secs(1)).await;
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.certificate, snapshot.connections), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn unused_socket_closes_without_a_share_after_half_a_minute() {
    let limiter = limiter();
    crate::share::Shares::of(&limiter).set(Share::default(), Instant::now());
    drop(open(&limiter, Quiet::default()));
    sleep(Duration::from_secs(29)).await;
    assert_eq!(limiter.snapshot().granted, 0);
    sleep(Duration::from_millis(2_002)).await;
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.granted, snapshot.connections), (1, 0));
}
