//! Secrets in texts. A binary of its own, because the largest level that tracing passes is set once
//! per process.

#[path = "../support/support.rs"]
#[expect(dead_code, reason = "a part of it is used")]
mod support;

mod foreign;
mod redaction;
