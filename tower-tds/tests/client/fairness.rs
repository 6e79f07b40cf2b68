//! Other callers beside slow or lost calls, as the service saw them: their rate under paused time, and that they are served over
//! sockets.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use http_body_util::BodyExt as _;
use tds_sim::{Config, Faults, Sim};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tower::ServiceExt as _;
use tower_tds::layers::{errors::RetryLayer, limits::Limits};

use crate::client::world::{faults, get, read, served, stack};

/// Makes a call, and ignores its result: the ledger has the counts.
type Call = Arc<dyn Fn(&str) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// A simulated service and its callers.
struct Called {
    sim: Sim,
    call: Call,
    calls: JoinSet<()>,
}

// === impl Called ===

impl Called {
    /// Starts `callers` tasks that call the service without a pause.
    fn by(callers: usize, sim: Sim, call: Call) -> Self {
        let mut calls = JoinSet::new();
        for _ in 0..callers {
            let call = Arc::clone(&call);
            calls.spawn(async move {
                loop {
                    call(&path("quick")).await;
                }
            });
        }
        Self { sim, call, calls }
    }

    /// The same through the whole layer, under paused time.
    fn paused(callers: usize, faults: Faults) -> Self {
        let sim = Sim::new(Config::default());
        sim.set_faults(faults);
        let stack = stack(&sim, RetryLayer::new(), Limits::default());
        let call = move |path: &str| {
            let call = stack.clone().oneshot(get(path));
            let read = async move {
                if let Ok(response) = call.await {
                    drop(response.into_body().collect().await);
                }
            };
            Box::pin(read) as Pin<Box<dyn Future<Output = ()> + Send>>
        };
        Self::by(callers, sim, Arc::new(call))
    }

    /// The arrivals of calls with `by={who}`, since the service's start.
    fn arrivals(&self, who: &str) -> Vec<Duration> {
        let all = self.sim.ledger().arrivals().into_iter();
        let like = all.filter(|arrival| arrival.target.ends_with(who));
        like.map(|arrival| arrival.at).collect()
    }

    /// The number of quick calls in each full second after `begin`.
    fn by_second(&self, begin: Duration, seconds: u64) -> Vec<usize> {
        let quick = self.arrivals("quick");
        let of = |second: u64| {
            let from = begin + Duration::from_secs(second);
            let until = from + Duration::from_secs(1);
            quick
                .iter()
                .filter(|at| (from..until).contains(*at))
                .count()
        };
        (0..seconds).map(of).collect()
    }

    /// Makes ten slow calls. Returns the arrival of the last.
    async fn ten_slow(&mut self) -> Duration {
        for _ in 0..10 {
            let call = Arc::clone(&self.call);
            self.calls.spawn(async move { call(&path("slow")).await });
        }
        while self.arrivals("slow").len() < 10 {
            sleep(Duration::from_millis(10)).await;
        }
        let last = self.arrivals("slow").into_iter().max();
        last.expect("there are ten")
    }
}

fn path(who: &str) -> String {
    format!("/v1/live/bus?by={who}")
}

/// Quick responses, and those of slow calls `after` so long.
fn slow_ones(after: &str) -> Faults {
    let mut faults = faults(&["head=80ms"]);
    faults.before_head_of = Some((String::from("slow"), after.parse().expect("a fixed delay")));
    faults
}

/// The other callers have half of the rate from the second second on, also when the heads arrive.
#[tokio::test(start_paused = true)]
async fn ten_slow_heads_leave_others_half_of_their_rate() {
    for after in ["12s", "3600s"] {
        let mut called = Called::paused(10, slow_ones(after));
        sleep(Duration::from_secs(2)).await;
        let begin = called.ten_slow().await;
        sleep(Duration::from_secs(15)).await;
        let seconds = called.by_second(begin, 14);
        assert!(
            seconds[1..].iter().all(|n| *n >= 25),
            "{after}: {seconds:?}"
        );
        assert_eq!(called.sim.ledger().summary().by_status.get(&423), None);
    }
}

#[tokio::test(start_paused = true)]
async fn lost_calls_leave_others_half_of_their_rate() {
    let called = Called::paused(30, faults(&["head=50ms"]));
    sleep(Duration::from_secs(2)).await;
    let resets = faults(&["head=50ms", "data=reset-head"]);
    called.sim.set_faults(resets);
    sleep(Duration::from_millis(400)).await;
    called.sim.set_faults(faults(&["head=50ms"]));
    let last = called.arrivals("quick").into_iter().max();
    let begin = last.expect("there were some") + Duration::from_secs(2);
    sleep(Duration::from_secs(13)).await;
    // Each call during the resets is lost, and holds its own permit for eleven seconds.
    let seconds = called.by_second(begin, 10);
    assert!(seconds.iter().all(|n| *n >= 25), "{seconds:?}");
}

#[tokio::test]
async fn callers_over_sockets_are_served_while_ten_calls_get_no_answer() {
    let (server, client) = served().await;
    server.sim().set_faults(slow_ones("3600s"));
    let call = move |path: &str| {
        let read = read(client.get(path));
        Box::pin(async { drop(read.await) }) as Pin<Box<dyn Future<Output = ()> + Send>>
    };
    let mut called = Called::by(10, server.sim().clone(), Arc::new(call));
    called.ten_slow().await;
    let enough = called.arrivals("quick").len() + 200;
    let served = async {
        while called.arrivals("quick").len() < enough {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(HANGS, served).await.expect("they are served");
    let seen = called.sim.ledger().summary();
    assert!(seen.in_progress >= 10, "{seen:?}");
    assert_eq!(seen.by_status.get(&423), None, "{seen:?}");
}

/// Many times as long as they take on a busy machine.
const HANGS: Duration = Duration::from_secs(90);
