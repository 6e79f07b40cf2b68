//! A subscriber that looks at the fleet whenever it is told something.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::time::{sleep, timeout};
use tower_tds_fleet::Fleet;
use tower_tds_limits::{AskLease, Leases};
use tracing_subscriber::{Layer, layer::Context, prelude::*};

use crate::{RedisServer, join};

static LOOKED_AT: OnceLock<Fleet> = OnceLock::new();
static LOOKS: AtomicU32 = AtomicU32::new(0);

struct Nosy;

impl<S: tracing::Subscriber> Layer<S> for Nosy {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target().starts_with("tower_tds_fleet")
            && let Some(fleet) = LOOKED_AT.get()
        {
            // It locks what the events are about.
            drop(format!("{fleet:?}"));
            LOOKS.fetch_add(1, SeqCst);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_may_look_at_the_fleet_that_tells_it_something() {
    let Some(mut store) = RedisServer::start() else {
        return;
    };
    tracing_subscriber::registry().with(Nosy).init();
    let fleet = LOOKED_AT.get_or_init(|| join(&store));
    let mut ask = AskLease::default();
    ask.max_wait = Some(Duration::ZERO);
    fleet.lease(ask).await.expect_err("it has no memory");
    store.kill();
    let ends = async {
        while fleet.status().away.is_none() || LOOKS.load(SeqCst) < 2 {
            sleep(Duration::from_millis(5)).await;
        }
        fleet.lease(ask).await.expect_err("there is no store")
    };
    let error = timeout(Duration::from_secs(30), ends)
        .await
        .expect("nothing stands still");
    assert!(error.is_unavailable(), "{error}");
}
