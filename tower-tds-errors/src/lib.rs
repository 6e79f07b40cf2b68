#![doc = include_str!("../README.md")]

mod classify;
mod clock;
mod error;
mod give_up;
mod guard;
mod kind;
mod retry;

/// The futures of the services.
pub mod future {
    pub use crate::classify::future::ClassifyFuture;
    pub use crate::guard::GuardFuture;
    pub use crate::retry::future::RetryFuture;
}

pub use self::classify::asked::Asked;
pub use self::classify::classify;
pub use self::classify::service::{Classify, ClassifyLayer};
pub use self::error::Error;
pub use self::give_up::GiveUp;
pub use self::guard::body::GuardBody;
pub use self::guard::{Guard, GuardLayer};
pub use self::kind::{Kind, Sent};
pub use self::retry::replay::{CloneBody, Replay};
pub use self::retry::request::{Attempt, Deadline, DeadlineAt, Repeat};
pub use self::retry::{Failure, Retry, RetryLayer};

/// Terms, ownership, and the obligations that tests are named after.
#[cfg(doc)]
#[doc = include_str!("../DESIGN.md")]
pub mod _design {}
