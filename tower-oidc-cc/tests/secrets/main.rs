//! Secrets in texts. Apart from the other tests, since what tracing lets through is
//! decided once per process.

#[path = "../support/support.rs"]
#[expect(dead_code, reason = "a part of it is used")]
mod support;

mod shown;
