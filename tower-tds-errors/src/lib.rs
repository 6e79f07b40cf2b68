#![doc = include_str!("../README.md")]

mod classify;
mod clock;
mod error;
mod kind;
mod response;
mod retry;

pub use self::classify::classify;
pub use self::classify::service::{Classify, ClassifyFuture, ClassifyLayer};
pub use self::error::Error;
pub use self::kind::{GiveUp, Kind};
pub use self::retry::budget::RetryBudget;
pub use self::retry::request::{Attempt, CloneBody, Repeat, Replay};
pub use self::retry::{Retry, RetryFuture, RetryLayer};
pub use tower_tds_outcome::{DeadlineAt, Outcome, Sent};
