//! Shared parts of the programs beside this file: the service they call, and how they talk.

mod say;
mod service;
mod settings;

pub use self::{
    say::{causes, end, say, say_bytes, tally, tell, warn},
    service::Service,
    settings::{NAMES, Usage, environment, no_argument, target},
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
