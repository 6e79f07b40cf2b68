//! What the programs beside this file share: the service they call, and how they talk.

mod say;
mod service;

pub use self::{
    say::{causes, end, say, warn},
    service::Service,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
