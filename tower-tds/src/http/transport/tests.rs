use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use http::Uri;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::{Instant, pause, sleep},
};
use tower::ServiceExt;
use tower_tds_limits::Limits;

use super::*;
use crate::http::tls::Tls;

fn secure(
    limiter: Limiter,
) -> impl Service<Uri, Response: Send, Error = BoxError, Future: Send> + Clone + Send {
    let tls = Tls::default().config(true).expect("roots");
    let connector = connector(limiter, tls, Proxies::default());
    Timeout::new(connector, HANDSHAKE_TIMEOUT)
}

#[tokio::test]
async fn unanswered_handshake_times_out_and_releases_its_permit() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = silent.local_addr().expect("an address");
    let url = format!("https://{address}").parse().expect("an address");
    let limiter = Limiter::new(Limits::default());
    let connector = secure(limiter.clone());
    let start = Instant::now();
    // Only a background task waits for the handshake, as if the request got another socket.
    let connect = tokio::spawn(connector.oneshot(url));
    let (mut socket, _) = silent.accept().await.expect("a socket");
    let hello = socket.read_u8().await.expect("the begin of a handshake");
    assert_eq!(hello, 0x16, "RFC 8446, section 5.1: a handshake record");
    assert_eq!(limiter.snapshot().connections, 1);
    // From here on only the timeout takes time.
    pause();
    let connected = connect.await.expect("no panic");
    connected.map(drop).expect_err("nobody answers");
    // The rest is what this machine took until the pause.
    assert!((20..=30).contains(&start.elapsed().as_secs()));
    // It is read to its end, because a server may count it.
    sleep(Duration::from_secs(31)).await;
    assert_eq!(limiter.snapshot().connections, 0);
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).await.expect("an end");
}

/// Sockets between the accept and the close of a server that lets no handshake through: the maximum
/// and the total.
async fn sockets_at(
    answer: &'static [u8],
    closes_after: Duration,
    connects: usize,
) -> (usize, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (open, most, all) = <(Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let counts = (Arc::clone(&open), Arc::clone(&most), Arc::clone(&all));
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let (open, most, all) = counts.clone();
            all.fetch_add(1, SeqCst);
            let before = open.fetch_add(1, SeqCst);
            most.fetch_max(before + 1, SeqCst);
            tokio::spawn(async move {
                socket.read_u8().await.expect("the begin of a handshake");
                socket.write_all(answer).await.expect("an open socket");
                sleep(closes_after).await;
                open.fetch_sub(1, SeqCst);
            });
        }
    });
    let one = Limits::default().connections(std::num::NonZeroU32::MIN);
    let limiter = Limiter::new(one);
    let connector = secure(limiter);
    let url: Uri = format!("https://{address}").parse().expect("an address");
    for _ in 0..connects {
        let connected = connector.clone().oneshot(url.clone()).await;
        connected.map(drop).expect_err("no handshake succeeds");
    }
    (most.load(SeqCst), all.load(SeqCst))
}

#[tokio::test]
async fn failed_handshake_keeps_its_permit_until_the_server_closes_also_after_a_close_notify() {
    // RFC 8446, section 6: a record of an alert, fatal or a warning, handshake_failure or close_notify.
    let (refused, notified) = (&[21, 3, 3, 0, 2, 2, 40], &[21, 3, 3, 0, 2, 1, 0]);
    for (alert, millis, connects) in [(refused, 100, 4), (notified, 500, 3)] {
        let seen = sockets_at(alert, Duration::from_millis(millis), connects).await;
        assert_eq!(seen, (1, connects), "{alert:?}");
    }
}

/// The kernel drops what a cut network has not acknowledged by then, so that an abandoned request cannot
/// arrive after its permit is free again.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn tcp_user_timeout_equals_lost_after() {
    use rustix::net::sockopt;

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let url: Uri = format!("http://{address}").parse().expect("an address");
    // Zero is the system's default, and the limits accept it.
    for (after, millis) in [(7_000, 7_000), (1, 1), (0, 1), (u64::MAX, 86_400_000)] {
        let limits = Limits::default().lost_after(Duration::from_millis(after));
        let limiter = Limiter::new(limits);
        let socket = tcp(&limiter).oneshot(Ok(url.clone())).await;
        let socket = socket.expect("a connection").into_inner();
        let timeout = sockopt::tcp_user_timeout(&socket);
        assert_eq!(timeout.expect("an option"), millis);
        // The kernel finds the connections that died while they were idle.
        assert!(sockopt::socket_keepalive(&socket).expect("an option"));
        let idle = sockopt::tcp_keepidle(&socket).expect("an option");
        assert_eq!(idle, KEEPALIVE);
    }
}
