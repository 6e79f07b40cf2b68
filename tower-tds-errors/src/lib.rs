#![doc = include_str!("../README.md")]

mod answer;
mod classify;
mod clock;
mod error;
mod kind;
mod retry;

/// Futures of the services.
pub mod future {
    pub use crate::classify::service::ClassifyFuture;
    pub use crate::retry::RetryFuture;
}

pub use self::classify::classify;
pub use self::classify::service::{Classify, ClassifyLayer};
pub use self::error::Error;
pub use self::kind::{GiveUp, Kind};
pub use self::retry::budget::RetryBudget;
pub use self::retry::request::{Attempt, CloneBody, HttpBody, Plain, Repeat, Replay};
pub use self::retry::{Retry, RetryLayer};
pub use tower_tds_outcome::{DeadlineAt, Outcome, Sent};
