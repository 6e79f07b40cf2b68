#![doc = include_str!("../README.md")]

mod classify;
mod clock;
mod error;
mod kind;
mod retry;

/// The futures of the services.
pub mod future {
    pub use crate::classify::service::ClassifyFuture;
    pub use crate::retry::RetryFuture;
}

pub use self::classify::classify;
pub use self::classify::service::{Classify, ClassifyLayer};
pub use self::error::Error;
pub use self::kind::{GiveUp, Kind, Sent};
pub use self::retry::request::{Attempt, CloneBody, Repeat, Replay};
pub use self::retry::{Retry, RetryLayer};
pub use tower_tds_outcome::{DeadlineAt, Outcome};
