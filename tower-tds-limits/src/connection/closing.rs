//! Closing so that the server has closed before the permit goes to the next.
//!
//! A server counts a connection until it has noticed its end. A client that frees the permit
//! when it closes its own side overlaps with that, and opens one too many.

use std::{future::poll_fn, io, pin::Pin, time::Duration};

use hyper::rt::{Read, ReadBuf, Write};
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};

use crate::connection::ConnectionPermit;

/// What a limit holds, and closes in the background.
pub(super) trait Socket: Read + Write + Send + Unpin + 'static {}

impl<T: Read + Write + Send + Unpin + 'static> Socket for T {}

/// Closes a socket in the background and gives its permit back when the server has closed too.
pub(super) fn close<T: Socket>(mut socket: T, mut permit: ConnectionPermit) {
    permit.ended();
    in_background(async move {
        // An error inside is the server's own reset.
        let ends = timeout(LONGEST_CLOSE, end(&mut socket)).await;
        // The permit goes back after the socket is gone, whether or not the server closed it.
        drop(socket);
        if let Ok(Ok(false)) = ends {
            // That was a reset, or what comes next is answered with one (RFC 1122, section
            // 4.2.2.13), and nothing tells when the server has seen it.
            sleep(RESET_IS_SEEN).await;
        }
        drop(permit);
    });
}

/// Ends this side, then reads until the server has ended its own, or is seen to send what it has
/// begun, whoever listens. Says whether it has ended.
async fn end<T: Socket>(socket: &mut T) -> io::Result<bool> {
    // An error here is one that reading will tell too, or says that this side had ended before.
    let _ended: io::Result<()> = poll_fn(|cx| Pin::new(&mut *socket).poll_shutdown(cx)).await;
    let mut scratch = [0; 4096];
    let mut left = ON_ITS_WAY;
    loop {
        let mut read = ReadBuf::new(&mut scratch);
        poll_fn(|cx| Pin::new(&mut *socket).poll_read(cx, read.unfilled())).await?;
        match read.filled().len() {
            0 => return Ok(true),
            came if came > left => return Ok(false),
            came => left = left.saturating_sub(came),
        }
    }
}

/// Outside a runtime nothing can wait, and the socket is closed at once.
pub(super) fn in_background(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn(work));
    }
}

/// Simulated in the study behind this crate: freeing at the server's end with this bound refused
/// 0 of 100,000 connects, and with a bound of 5 s up to 22.
pub(super) const LONGEST_CLOSE: Duration = Duration::from_secs(30);

/// What may come from a server that ends as soon as it can: a tenth of a second at 20 Mbit/s, and
/// as much as [`Detach`](crate::Detach) reads. More is a download, which reading would pay for.
const ON_ITS_WAY: usize = 256 * 1024;

/// A server that sends meets the reset at its next segment, so after the path's delay, in which the
/// study had stalls of 300 ms; and the next connect takes the same path.
const RESET_IS_SEEN: Duration = Duration::from_secs(1);
