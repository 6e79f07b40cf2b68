//! The connector's readiness: a permit that is held until the call.

use http::Uri;
use tokio_test::{assert_pending, task};
use tower::{Layer, Service, ServiceExt};
use tower_tds_limits::ConnectionLimitLayer;

use super::{limiter, probe::Probe};
use crate::connections::all_permits_back;

#[tokio::test(start_paused = true)]
async fn readied_connector_is_called_and_its_clone_is_unready() {
    let limiter = limiter(1);
    let mut connector = ConnectionLimitLayer::new(limiter.clone()).layer(Probe::new());
    let target = Uri::from_static("http://a");
    for _ in 0..10 {
        let readied = ServiceExt::<Uri>::ready(&mut connector).await;
        let readied = readied.expect("there is a permit");
        let mut clone = task::spawn(readied.clone().oneshot(target.clone()));
        assert_pending!(clone.poll());
        assert_pending!(clone.poll(), "the one permit is with the original");
        let socket = readied.call(target.clone()).await.expect("a socket");
        assert_eq!(limiter.snapshot().connections, 1);
        drop((socket, clone));
        all_permits_back(&limiter).await;
    }
}

#[tokio::test]
#[should_panic(expected = "`poll_ready` must return Ready before `call`")]
async fn calling_an_unready_connector_panics() {
    let mut connector = ConnectionLimitLayer::new(limiter(1)).layer(Probe::new());
    drop(connector.call(Uri::from_static("http://a")));
}
