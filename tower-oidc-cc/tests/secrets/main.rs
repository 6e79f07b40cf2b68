//! Secrets in text and in memory. Apart from the other tests, since what tracing lets through is
//! decided once per process.

#[path = "../support/support.rs"]
#[expect(dead_code, reason = "a part of it is used")]
mod support;

#[cfg(target_os = "linux")]
mod memory;
mod shown;
