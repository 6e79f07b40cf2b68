//! Tower layers that say what an answer means and retry what is worth it.

mod chain;
mod classify;
mod clock;
mod error;
mod hint;
mod kind;
mod retry;
mod sent;
mod stop;

/// The futures of the services.
pub mod future {
    pub use crate::classify::future::ResponseFuture as ClassifyFuture;
    pub use crate::retry::future::ResponseFuture as RetryFuture;
}

pub use self::classify::{Answer, Classify, ClassifyLayer};
pub use self::error::Error;
pub use self::kind::Kind;
pub use self::retry::attempt::{Attempt, Retried};
pub use self::retry::backoff::Backoff;
pub use self::retry::replay::{CloneBody, NeverReplay, Replay};
pub use self::retry::{Retry, RetryLayer};
pub use self::sent::Sent;
pub use self::stop::Stop;
