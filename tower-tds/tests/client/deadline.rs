//! Deadlines over sockets: nothing is sent after them. Where a call may hang is in `stalls.rs`, and beyond the quota in
//! `overload.rs`.

use std::time::Duration;

use http::Request;
use tds_sim::Config;
use tokio::time::sleep;
use tower::{Service as _, ServiceExt as _};
use tower_tds::{Deadline, Error, Limits, Quota, RequestBody, layers::errors::GiveUp};

use crate::client::world::{self, Built as _, PATH, at_once, count, read, served, start, until};

#[tokio::test]
async fn no_call_over_sockets_begins_after_its_deadline() {
    let server = start(Config::default()).await;
    let limits = Limits::new(Quota::per_second(count(20)));
    let client = world::builder(&server).limits(limits).built();
    let second = Deadline::from(Duration::from_secs(1));
    let url = format!("{}{PATH}", server.base_url());
    let calls = (0..400).map(|_| {
        let request = Request::get(&url).extension(second);
        let request = request.body(RequestBody::default()).expect("a request");
        Box::pin(client.clone().oneshot(request)) as _
    });
    let ended: Vec<Result<_, Error>> = at_once(calls).await;
    let failed: Vec<_> = ended.into_iter().filter_map(Result::err).collect();
    for error in &failed {
        assert_eq!(error.gave_up(), Some(GiveUp::Deadline), "{error:?}");
        assert!(error.waited_for().is_some(), "{error:?}");
    }
    assert!(failed.len() > 300);
    // Calls in flight at the deadline still reach the service.
    sleep(Duration::from_millis(100)).await;
    until(|| server.ledger().summary().in_progress == 0).await;
    let then = server.ledger().summary().data_calls;
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(server.ledger().summary().data_calls, then);
}

#[test]
fn call_made_without_a_runtime_runs_where_it_is_polled() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let (server, mut client) = runtime.block_on(served());
    let request = Request::get(format!("{}{PATH}", server.base_url()));
    let call = client.call(request.body(RequestBody::default()).expect("a request"));
    let response = runtime.block_on(call).expect("data");
    assert_eq!(response.status(), 200);
    let called = runtime.block_on(read(client.get(PATH)));
    called.expect("data");
}
