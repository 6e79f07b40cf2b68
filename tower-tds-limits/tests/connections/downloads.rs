//! Cancelled downloads.

use std::time::Duration;

use http::{Request, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::{
    get, limiter,
    net::{Net, NetClient, net_client},
};

/// Reads the beginning of a body.
async fn begin(client: &NetClient, uri: Uri) -> Incoming {
    let request = Request::get(uri).body(Empty::new()).expect("a request");
    let response = client.clone().oneshot(request).await.expect("a head");
    let mut body = response.into_body();
    drop(body.frame().await.expect("a piece").expect("a piece"));
    body
}

#[tokio::test(start_paused = true)]
async fn cancelled_download_ends_and_frees_its_permit_a_second_later() {
    let net = Net::of(["a"]);
    let limiter = limiter(1);
    let client = net_client(&net, &limiter);
    let a = net.server("a");
    let before = Instant::now();
    drop(begin(&client, a.at("/endless")).await);
    a.seen_ends(1).await;
    assert!(before.elapsed() < Duration::from_millis(200), "{before:?}");
    assert!(a.sent() < 512 * 1024, "{} bytes", a.sent());
    // The next connect begins only after the server has noticed the end of the last one.
    get(client, a.uri()).await.expect("there is room again");
    assert_eq!(before.elapsed().as_secs(), 1);
    assert_eq!((a.opened_sockets(), a.peak_sockets()), (2, 1));
}
