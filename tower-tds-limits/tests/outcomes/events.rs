//! Log events, as an operator reads them.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::time::advance;

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

#[tokio::test(start_paused = true)]
async fn refusals_are_told_and_what_goes_well_is_not() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    // With one alone, an event that another thread meets first is told to nobody, for good.
    let _other = tracing::Dispatch::new(tracing_subscriber::registry());
    let _default = tracing::subscriber::set_default(subscriber);
    let limited = Limited::before(Scripted::new(ms(20), |n| match n {
        100..=102 => Answer::status(423),
        103 => Answer::status(429).retry_after(3),
        104 => Answer::status(416),
        _ => Answer::ok(),
    }));
    let told = || {
        let log = log.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = log
            .split(|byte| *byte == b'\n')
            .map(String::from_utf8_lossy);
        let ours = lines.filter(|line| line.contains("tower_tds_limits"));
        ours.map(|line| line.into_owned()).collect::<Vec<_>>()
    };
    limited.calls(100).await;
    // What another thread met before there were two.
    tracing::callsite::rebuild_interest_cache();
    let about_waits = |line: &String| line.contains(" a call ");
    assert!(told().iter().all(about_waits), "{:?}", told());
    let told = || {
        let mut told = told();
        told.retain(|line| !about_waits(line));
        told
    };
    for (what, text) in [
        ("WARN", "silent for a second"),
        ("WARN", "silent for a second"),
        ("WARN", "silent for a second, and stricter"),
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
        told()[2].contains("rung=Strict certificate=50"),
        "{}",
        told()[2]
    );
    advance(secs(700)).await;
    limited.calls(1).await;
    assert!(told()[5].contains("INFO") && told()[5].contains("rung=Proven"));
}
