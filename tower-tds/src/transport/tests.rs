use tokio::{
    io::AsyncReadExt,
    net::TcpListener,
    time::{Instant, pause, sleep},
};
use tower::ServiceExt;
use tower_tds_limits::Limits;

use super::*;

#[tokio::test]
async fn a_handshake_that_nobody_answers_ends_and_gives_its_permit_back() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = silent.local_addr().expect("an address");
    let url = format!("https://{address}").parse().expect("an address");
    let limiter = Limiter::new(Limits::default());
    let connector = connector(limiter.clone(), Schemes::HttpsOnly).expect("roots");
    // Nobody waits for it but a task, as in a pool whose request has got another socket.
    let connect = tokio::spawn(connector.oneshot(url));
    let (mut socket, _) = silent.accept().await.expect("a socket");
    let hello = socket.read_u8().await.expect("the begin of a handshake");
    assert_eq!(hello, 0x16, "RFC 8446, section 5.1: a handshake record");
    assert_eq!(limiter.snapshot().connections, 1);
    // From here on only the silence takes time.
    pause();
    let start = Instant::now();
    let connected = connect.await.expect("no panic");
    connected.map(drop).expect_err("nobody answers");
    assert!((19..=20).contains(&start.elapsed().as_secs()));
    // It is seen to its end, as everything that a server may count.
    sleep(Duration::from_secs(31)).await;
    assert_eq!(limiter.snapshot().connections, 0);
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).await.expect("an end");
}
