//! Log events: one for each failed attempt, and one for how a call ended.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex};

use tower::{Layer, ServiceExt};
use tower_tds_errors::{ClassifyLayer, RetryLayer};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::probe::{Probe, get, status_of};

/// Records events, and nothing else.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tower_tds_errors")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The events of a call that gets these statuses.
async fn told(statuses: &'static [u16]) -> Vec<String> {
    // With a single dispatcher, tracing caches the interest of the first thread at a callsite for
    // all threads. A second dispatcher prevents that.
    static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Log::default()));
    LazyLock::force(&SECOND);
    let log = Log::default();
    let guard = tracing::subscriber::set_default(log.clone());
    tracing::callsite::rebuild_interest_cache();
    let probe = Probe::new(|n| Ok(status_of(statuses[n])));
    let stack = RetryLayer::new().layer(ClassifyLayer::new().layer(probe));
    let uri = "https://user:CANARY@api.example/v2?key=CANARY";
    stack.oneshot(get(uri)).await.ok();
    drop(guard);
    let told = log.0.lock().unwrap().clone();
    assert!(!told.concat().contains("CANARY"), "{told:?}");
    told
}

#[tokio::test(start_paused = true)]
async fn only_failed_attempts_and_their_outcomes_are_events() {
    let attempt = "message=attempt failed, trying again";
    let (mended, failed) = ("message=request succeeded", "message=request failed");
    for (statuses, expected) in [
        (&[200][..], &[][..]),
        (&[503, 200], &[attempt, mended]),
        (&[503, 423, 429], &[attempt, attempt, failed]),
        (&[404], &[failed]),
    ] {
        let told = told(statuses).await;
        assert_eq!(told.len(), expected.len(), "{told:?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.contains(expected), "{told}");
        }
    }
    let told = told(&[503, 404]).await;
    assert!(told[0].contains("kind=unavailable") && told[0].contains("attempt=1"));
    assert!(told[1].contains("kind=not_found") && told[1].contains("attempts=2"));
    assert!(told[1].contains("stop=fatal"), "{told:?}");
}
