//! Chromium as a user or an operator has it, driven by `clients/browser.py`.

use std::{
    io::{BufRead as _, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
};

use serde_json::Value;

use crate::{Bench, skipped};

/// A browser with a page. It ends with its test.
pub(crate) struct Browser {
    child: Child,
    values: Lines<BufReader<ChildStdout>>,
}

// === impl Browser ===

impl Browser {
    /// Opens a page, and waits for each of these expressions to be true. `None` if a program is missing.
    pub(crate) fn open(
        bench: &Bench,
        options: &[&str],
        url: &str,
        expressions: &[&str],
    ) -> Option<Self> {
        if skipped("chromium") || skipped("python3") {
            return None;
        }
        let mut driver = Command::new("python3");
        driver.arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/clients/browser.py"
        ));
        driver.arg(format!("--profile={}", bench.path("profile").display()));
        driver.args(options).arg(url).args(expressions);
        let mut child = driver.stdout(Stdio::piped()).spawn().expect("it starts");
        let out = child.stdout.take().expect("it is piped");
        let values = BufReader::new(out).lines();
        Some(Self { child, values })
    }

    /// The value of the next expression.
    pub(crate) fn value(&mut self) -> Value {
        let line = self.values.next().expect("a value").expect("text");
        serde_json::from_str(&line).expect("JSON")
    }

    pub(crate) fn text(&mut self) -> String {
        self.value().as_str().expect("text").to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends after its last value, and the browser with it.
        drop(self.child.wait());
    }
}
