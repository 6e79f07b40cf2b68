//! What the programs beside this file share: how they talk to whoever runs them.

mod say;

pub use self::say::{causes, say, warn};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
