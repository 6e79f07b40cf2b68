//! Sockets at the end of a share of a fleet's limits, as a server sees them.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tower_tds_limits::Share;

use crate::connections::{
    get, limiter,
    net::{Net, net_client},
};

fn share() -> Share {
    Share {
        requests: 1_000,
        places: 10,
        connections: 5,
    }
}

#[tokio::test(start_paused = true)]
async fn sockets_close_at_the_end_of_a_share() {
    let net = Net::of(["a"]);
    let server = net.server("a");
    let limiter = limiter(10);
    let client = net_client(&net, &limiter);
    limiter.set_share(share(), Instant::now() + Duration::from_secs(60), None);
    get(client.clone(), server.uri()).await.expect("a response");
    let busy = tokio::spawn(get(client.clone(), server.at("/slow")));
    sleep(Duration::from_millis(10)).await;
    assert_eq!(server.open_sockets(), 1);
    limiter.set_share(Share::default(), Instant::now(), None);
    let error = busy
        .await
        .expect("no panic")
        .expect_err("its socket is closed");
    assert!(error.contains("end of its share"), "{error}");
    // The server reads on when it has sent its response.
    sleep(Duration::from_millis(200)).await;
    assert_eq!(server.open_sockets(), 0);
    limiter.set_share(share(), Instant::now() + Duration::from_secs(60), None);
    get(client, server.uri()).await.expect("a response");
    assert_eq!(server.opened_sockets(), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_after_the_end_of_a_share() {
    let net = Net::of(["a"]);
    let server = net.server("a");
    let limiter = limiter(10);
    let client = net_client(&net, &limiter);
    limiter.set_share(share(), Instant::now() + Duration::from_secs(1), None);
    get(client.clone(), server.uri()).await.expect("a response");
    let before = server.requests();
    // No call applies the end of the share: the check before the write finds it.
    sleep(Duration::from_millis(1_001)).await;
    // Another connect waits for the next share.
    let call = timeout(Duration::from_secs(5), get(client, server.uri())).await;
    call.expect_err("the share is over");
    assert_eq!((server.requests(), server.opened_sockets()), (before, 1));
}
