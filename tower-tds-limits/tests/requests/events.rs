//! Log events, as an operator reads them.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::time::advance;
use tower_tds_limits::{Limits, Rules};
use tracing::{Dispatch, subscriber::DefaultGuard};
use tracing_subscriber::{Layer as _, filter::dynamic_filter_fn, layer::SubscriberExt as _};

use crate::{
    limited::Limited,
    ms, secs,
    service::{Answer, Scripted},
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

/// What the limits say on this thread.
struct Heard {
    log: Log,
    _default: DefaultGuard,
    // With one alone, an event that another thread meets first is told to nobody, for good.
    _other: Dispatch,
}

// === impl Heard ===

impl Heard {
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
        // What another thread met before there were two.
        tracing::callsite::rebuild_interest_cache();
        Self {
            log,
            _default: default,
            _other: other,
        }
    }

    /// The lines about waits, or the others.
    fn lines(&self, about_waits: bool) -> Vec<String> {
        let log = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = log
            .split(|byte| *byte == b'\n')
            .map(String::from_utf8_lossy);
        let ours = lines.filter(|line| line.contains("tower_tds_limits"));
        ours.filter(|line| line.contains(" a call ") == about_waits)
            .map(|line| line.into_owned())
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_is_told_when_it_is_over() {
    let heard = Heard::begin();
    // The last two wait for the window, until a second after the first fifty were answered.
    let service = Scripted::new(ms(20), |_| Answer::ok());
    let limited = Limited::new(Limits::default().rules(Rules::window()), service);
    limited.calls(52).await;
    let told = heard.lines(true);
    assert_eq!(told.len(), 2, "{told:?}");
    for (line, ahead) in told.iter().zip(["ahead=0", "ahead=1"]) {
        for word in [
            "DEBUG",
            "cause=Window",
            "a call has waited for ",
            "waited=1.0",
            ahead,
        ] {
            assert!(line.contains(word), "{word}: {line}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_are_told_and_what_goes_well_is_not() {
    let heard = Heard::begin();
    let limited = Limited::before(Scripted::new(ms(20), |n| match n {
        100..=103 => Answer::status(423),
        104 => Answer::status(429).retry_after(3),
        105 => Answer::status(416),
        _ => Answer::ok(),
    }));
    let told = || heard.lines(false);
    limited.calls(100).await;
    assert_eq!(told(), Vec::<String>::new());
    // The first was alone, and fewer of ours would have avoided the others.
    limited.calls(4).await;
    let lines = told();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(
        lines
            .iter()
            .all(|line| line.contains("silent for a second"))
    );
    assert!(lines[3].contains("and stricter"), "{lines:?}");
    for (what, text) in [
        (
            "WARN",
            "refuses this credential for a time: all its calls wait wait=3s",
        ),
        ("WARN", "counts too many connections"),
    ] {
        let before = told().len();
        limited.calls(1).await;
        let told = told();
        let [line] = &told[before..] else {
            panic!("one line for {text}, and not {told:?}");
        };
        assert!(line.contains(what) && line.contains(text), "{line}");
    }
    assert!(
        told()[3].contains("rung=Serial certificate=50"),
        "{}",
        told()[3]
    );
    advance(secs(700)).await;
    limited.calls(1).await;
    assert!(told()[6].contains("INFO") && told()[6].contains("rung=Strict"));
}

/// It is asked whether it hears of an event, too.
#[tokio::test(start_paused = true)]
async fn a_subscriber_may_look_at_the_limiter_before_it_says_what_it_hears() {
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
