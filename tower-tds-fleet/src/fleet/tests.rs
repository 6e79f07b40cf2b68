use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready, task};

use super::*;
use crate::member::{Next, Reply};

/// One whose member nobody drives.
fn shared() -> Arc<Shared> {
    let second = Duration::from_secs(1);
    let term = Term {
        lease: second.saturating_mul(20),
        lost: second.saturating_mul(10),
    };
    Arc::new(Shared {
        state: Mutex::new(State {
            member: Member::new(term, None, clock::now()),
            standing: Standing::default(),
            store: Store::Here,
            telling: false,
            closed: false,
            ended: false,
        }),
        news: Notify::new(),
        told: Notify::new(),
    })
}

/// With one lease that is used from now on.
fn held(shared: &Arc<Shared>) -> Held {
    let mut lease = task::spawn(Arc::clone(shared).lease(AskLease::default()));
    assert_pending!(lease.poll());
    let granted = {
        let member = &mut shared.lock().member;
        let Next::Ask(ask) = member.next(clock::now()) else {
            panic!("one waits");
        };
        let reply = Reply {
            granted: vec![7],
            wait: None,
            paused: Duration::ZERO,
            agreed: false,
            server: 1,
            unknown: Vec::new(),
        };
        member.answered(&ask, reply, clock::now(), clock::now())
    };
    shared.hand_out(granted);
    assert_ready!(lease.poll()).expect("a lease")
}

/// The whole process was stopped, and its thread has not run yet.
#[tokio::test(start_paused = true)]
async fn a_lease_is_over_by_the_clock_and_not_when_the_thread_says_so() {
    let mut held = held(&shared());
    let mut over = task::spawn(std::future::poll_fn(|cx| held.poll_over(cx)));
    advance(Duration::from_millis(9_999)).await;
    assert_pending!(over.poll());
    advance(Duration::from_millis(1)).await;
    assert_ready!(over.poll());
}

/// As of one among many that are polled by one task, one after the other: a channel says nothing then.
#[tokio::test(start_paused = true)]
async fn a_lease_is_over_for_a_task_that_has_used_up_its_turn_too() {
    let mut held = held(&shared());
    advance(Duration::from_secs(10)).await;
    let over = std::future::poll_fn(|cx| {
        while tokio::task::coop::has_budget_remaining() {
            let (sender, mut answer) = oneshot::channel();
            sender.send(()).expect("nobody is gone");
            assert!(Pin::new(&mut answer).poll(cx).is_ready());
        }
        Poll::Ready(held.poll_over(cx))
    });
    assert!(over.await.is_ready());
}
