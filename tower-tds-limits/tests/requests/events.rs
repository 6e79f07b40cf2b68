//! Log events, as an operator reads them.

use std::{
    io,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::time::{advance, sleep};
use tower::ServiceExt;
use tower_tds_limits::Limits;
use tracing::{Dispatch, Instrument as _, field::Empty, subscriber::DefaultGuard};
use tracing_subscriber::{Layer as _, filter::dynamic_filter_fn, layer::SubscriberExt as _};

use crate::requests::{
    limited::Limited,
    ms, secs,
    service::{Answer, Scripted, request},
};

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Events of the limits on this thread.
struct Recorded {
    log: Log,
    _default: DefaultGuard,
    // Kept because, with one dispatcher, an event that another thread used first stays disabled.
    _other: Dispatch,
}

// === impl Recorded ===

impl Recorded {
    fn begin() -> Self {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let other = Dispatch::new(tracing_subscriber::registry());
        let default = tracing::subscriber::set_default(subscriber);
        // Events that were used before there were two dispatchers are enabled by this.
        tracing::callsite::rebuild_interest_cache();
        Self {
            log,
            _default: default,
            _other: other,
        }
    }

    fn lines(&self) -> Vec<String> {
        let log = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = log
            .split(|byte| *byte == b'\n')
            .map(String::from_utf8_lossy);
        let ours = lines.filter(|line| line.contains("tower_tds_limits"));
        ours.map(|line| line.into_owned()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_recorded_in_the_current_span() {
    let recorded = Recorded::begin();
    let limits = Limits::default().in_flight(NonZeroU32::MIN);
    let limited = Limited::new(limits, Scripted::new(ms(300), |_| Answer::ok()));
    let span = tracing::info_span!("attempt", tds.wait.cause = Empty, tds.wait.seconds = Empty);
    let holds = tokio::spawn(limited.caller().oneshot(request()));
    tokio::task::yield_now().await;
    let call = limited.caller().oneshot(request());
    call.instrument(span.clone()).await.expect("a response");
    span.in_scope(|| tracing::info!(target: "tower_tds_limits", "recorded"));
    drop(holds.await);
    let lines = recorded.lines();
    let recorded = lines.iter().find(|line| line.contains("recorded"));
    let recorded = recorded.expect("it is logged");
    let fields = r#"tds.wait.cause="in_flight" tds.wait.seconds=0.3"#;
    assert!(recorded.contains(fields), "{recorded}");
}

#[tokio::test(start_paused = true)]
async fn refusals_are_logged_and_success_is_not() {
    let recorded = Recorded::begin();
    let limited = Limited::before(Scripted::new(ms(20), |n| match n {
        100..=103 => Answer::status(423),
        104 => Answer::status(429).retry_after(3),
        105 => Answer::status(416),
        _ => Answer::ok(),
    }));
    let logged = || recorded.lines();
    limited.calls(100).await;
    assert_eq!(logged(), Vec::<String>::new());
    sleep(secs(5)).await;
    limited.calls(4).await;
    let lines = logged();
    let [line] = &lines[..] else {
        panic!("one line for a volley, and not {lines:?}");
    };
    for text in ["WARN", "nothing is sent for 1 s", "requests=50 per=1s"] {
        assert!(line.contains(text), "{line}");
    }
    for (what, text) in [
        ("WARN", "calls of this stack wait wait=3s"),
        ("WARN", "too many connections"),
    ] {
        let before = logged().len();
        limited.calls(1).await;
        let logged = logged();
        let [line] = &logged[before..] else {
            panic!("one line for {text}, and not {logged:?}");
        };
        assert!(line.contains(what) && line.contains(text), "{line}");
    }
    advance(secs(700)).await;
    limited.calls(1).await;
    let last = logged().pop().unwrap_or_default();
    assert!(
        last.contains("INFO") && last.contains("the whole quota holds again"),
        "{last}"
    );
}

/// `Subscriber::enabled` may read the limiter as well.
#[tokio::test(start_paused = true)]
async fn subscriber_can_read_the_limiter_inside_enabled() {
    let limited = Limited::before(Scripted::new(ms(20), |_| Answer::ok()));
    let limiter = limited.limiter.clone();
    let looks = dynamic_filter_fn(move |_, _| limiter.snapshot().granted < u64::MAX);
    let subscriber = tracing_subscriber::registry().with(
        tracing_subscriber::fmt::layer()
            .with_writer(io::sink)
            .with_filter(looks),
    );
    let _other = Dispatch::new(tracing_subscriber::registry());
    let _default = tracing::subscriber::set_default(subscriber);
    tracing::callsite::rebuild_interest_cache();
    assert_eq!(limited.calls(60).await, [200; 60]);
}
