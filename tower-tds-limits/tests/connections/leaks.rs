//! Nothing is left behind: no task, no waiter, no socket, no permit.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use http::Uri;
use tokio::{runtime::Handle, task::JoinSet, time::Instant};
use tower_tds_limits::Limiter;

use crate::connections::{
    all_permits_back, count, get, limited, limiter,
    net::{Net, NetClient, net_client},
    no_quota, server,
};

#[tokio::test(start_paused = true)]
async fn thousand_waiting_requests_leave_no_task_and_no_waiter() {
    let net = Net::of(["a"]);
    let a = net.server("a");
    let limiter = limiter(10);
    let client = net_client(&net, &limiter);
    let tasks = || Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks(), 0);
    a.answer_together(10);
    let mut calls = JoinSet::new();
    for _ in 0..1_000 {
        calls.spawn(get(client.clone(), a.uri()));
    }
    for body in calls.join_all().await {
        assert_eq!(body.expect("every call is answered"), server::BODY);
    }
    let before = Instant::now();
    // Each of the ten idle sockets has a task on either side, and the limit has its timer. The
    // pool's own connects wait for 35 s at most.
    while tasks() > 21 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(before.elapsed() < Duration::from_secs(61));
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.connections, snapshot.connects_waiting), (10, 0));
    // No socket is opened without a request, and the timer has ended.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((a.opened_sockets(), tasks()), (10, 20));
    drop(client);
    all_permits_back(&limiter).await;
    assert!(tasks() <= 1);
    drop(limiter);
    tokio::task::yield_now().await;
    assert_eq!(tasks(), 0);
}

/// Makes a call, and drops it after `polls` polls.
async fn hang_up(client: NetClient, limiter: Limiter, uri: Uri, polls: u32) {
    let mut call = pin!(get(limited(&limiter, client), uri));
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        call.as_mut().poll(cx).map(drop)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_cancelled_at_random_leave_no_socket_and_no_permit() {
    let net = Net::of(["a", "b", "c"]);
    let limits = no_quota()
        .lost_after(Duration::ZERO)
        .connections(count(7))
        .in_flight(count(20));
    let limiter = Limiter::new(limits);
    let client = net_client(&net, &limiter);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut calls = JoinSet::new();
    for n in 0..100_000_u32 {
        let server = net.server(["a", "b", "c"][rng.usize(0..3)]);
        let uri = server.at(["/", "/", "/held", "/late", "/until-close"][rng.usize(0..5)]);
        let call = hang_up(client.clone(), limiter.clone(), uri, rng.u32(0..12));
        calls.spawn(async move {
            // A call without an answer is cancelled.
            let _late = tokio::time::timeout(Duration::from_millis(50), call).await;
        });
        if n % 50 == 0 {
            tokio::time::sleep(Duration::from_millis(u64::from(rng.u8(0..30)))).await;
        }
    }
    calls.join_all().await;
    let mut requests = 0;
    for name in ["a", "b", "c"] {
        let server = net.server(name);
        assert!(server.peak_sockets() <= 7);
        requests += server.requests();
    }
    // This takes half a minute at most: most calls close their socket, which costs a permit for a
    // second.
    assert!(requests > 150, "{requests}");

    drop(client);
    for name in ["a", "b", "c"] {
        net.server(name).release();
    }
    let before = Instant::now();
    while limiter.snapshot().connections > 0 {
        // The pool's own connects leave the queue, and the last socket is closed.
        assert!(before.elapsed() < Duration::from_secs(100), "{limiter:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.in_flight, snapshot.waiting), (0, 0));
    assert_eq!(snapshot.connects_waiting, 0);
    let open: u32 = ["a", "b", "c"]
        .map(|name| net.server(name).open_sockets())
        .iter()
        .sum();
    assert_eq!(open, 0);
    // The timer of the queue ends with the limiter.
    drop(limiter);
    tokio::task::yield_now().await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
}
