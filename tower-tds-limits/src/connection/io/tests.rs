use std::{collections::VecDeque, num::NonZeroU32, time::Duration};

use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep};
use tokio_test::task;

use super::*;
use crate::{
    limiter::Limiter,
    limits::{Limits, Quota, Rules},
    wait::{Limit as _, Priority},
};

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
    let priority = connections.update(|it| it.admit(Priority::Normal, None));
    LimitedIo::new(socket, ConnectionPermit::new(connections, priority))
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
    drop(io);
    seconds_until_it_is_back(&limiter).await
}

async fn seconds_until_it_is_back(limiter: &Limiter) -> u64 {
    let before = Instant::now();
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
        for end in [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe] {
            assert_eq!(permit_is_back_after(end, place).await, 1, "{place:?}");
        }
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
    assert_eq!(limiter.snapshot().connections, 1);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(limiter.snapshot().connections, 0);
}

/// It may have been lost, and is sent again after as long at most.
#[tokio::test(start_paused = true)]
async fn a_late_end_of_the_server_does_not_show_that_it_has_the_end_of_this_side() {
    for (seconds, returns) in [(0, 1), (4, 9), (20, 30)] {
        let limiter = limiter();
        let (client, server) = tokio::io::duplex(1);
        drop(open(&limiter, TokioIo::new(client)));
        tokio::spawn(async move {
            sleep(Duration::from_secs(seconds)).await;
            drop(server);
        });
        assert_eq!(seconds_until_it_is_back(&limiter).await, returns);
    }
}
