use std::time::Duration;

use tokio::time::{pause, sleep};

use super::*;

fn connection(calls: &Arc<Calls>) -> ConnectionState {
    Pooled::new((), calls).state
}

/// A whole exchange on a connection.
fn exchange(calls: &Arc<Calls>, connection: &ConnectionState) {
    let call = calls.begin(None);
    connection.begin();
    call.answered();
    drop(connection.clone().in_use());
}

#[tokio::test]
async fn connection_that_was_idle_before_a_silent_call_is_doubtful() {
    let calls = Arc::<Calls>::default();
    let [before, since, after] = [(); 3].map(|()| connection(&calls));
    exchange(&calls, &before);
    let silent = calls.begin(None);
    exchange(&calls, &since);
    assert!(!before.is_doubtful(), "nothing has failed");
    drop(silent);
    exchange(&calls, &after);
    assert!(before.is_doubtful());
    assert!(!since.is_doubtful() && !after.is_doubtful());
    assert!(!connection(&calls).is_doubtful(), "it is new");
}

#[tokio::test]
async fn call_at_its_deadline_is_silent_although_it_is_completed() {
    pause();
    let calls = Arc::<Calls>::default();
    let idle = connection(&calls);
    exchange(&calls, &idle);
    let late = calls.begin(Some(Instant::now() + Duration::from_secs(2)));
    calls.begin(None).answered();
    assert!(!idle.is_doubtful());
    sleep(Duration::from_secs(2)).await;
    let next = calls.begin(None);
    assert!(idle.is_doubtful(), "from the next call on");
    late.answered();
    next.answered();
    assert!(calls.waiting().is_empty());
}

#[tokio::test]
async fn connection_in_use_is_never_doubtful() {
    let calls = Arc::<Calls>::default();
    let downloading = connection(&calls);
    let call = calls.begin(None);
    downloading.begin();
    call.answered();
    let body = downloading.clone().in_use();
    drop(calls.begin(None));
    assert!(!downloading.is_doubtful());
    drop(body);
    assert!(!downloading.is_doubtful(), "it was read later");
    drop(calls.begin(None));
    assert!(downloading.is_doubtful());
}

#[tokio::test]
async fn body_that_is_kept_does_not_end_the_next_request() {
    let calls = Arc::<Calls>::default();
    let shared = connection(&calls);
    let call = calls.begin(None);
    shared.begin();
    call.answered();
    let kept = shared.clone().in_use();
    drop(shared.clone().in_use());
    let next = calls.begin(None);
    shared.begin();
    drop(kept);
    drop(calls.begin(None));
    assert!(!shared.is_doubtful(), "the next request waits on it");
    next.answered();
}
