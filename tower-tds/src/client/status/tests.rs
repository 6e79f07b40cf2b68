use http::{Request, Response, header::RETRY_AFTER};
use http_body_util::Empty;
use tower::service_fn;

use super::*;
use crate::{Client, RequestBody};

/// A probe that takes its traffic away while it is not ready would otherwise wait forever, because
/// only a call can show that the quota is back.
#[tokio::test(start_paused = true)]
async fn client_is_ready_when_a_pause_is_over_although_no_call_follows() {
    let fake = async |_: Request<RequestBody>| {
        let response = Response::builder().status(429).header(RETRY_AFTER, "30");
        response.body(Empty::<bytes::Bytes>::new())
    };
    let client = Client::from_service(service_fn(fake));
    client.tokens().ready().await.expect("a token");
    assert!(client.status().is_ready());
    let call = client.get("/v1/live/bus").deadline(Duration::from_secs(1));
    let error = call.await.expect_err("the quota is used up");
    assert_eq!(error.kind(), tower_tds_errors::Kind::Throttled);
    let status = client.status();
    assert!(!status.is_ready(), "{status}");
    assert!(status.to_string().contains("pause"), "{status}");
    tokio::time::advance(Duration::from_secs(30)).await;
    let status = client.status();
    assert!(status.is_ready(), "{status}");
    assert!(!status.to_string().contains("pause"), "{status}");
}
