//! Sends again what may succeed then: the layer, the service, the future, and the pure decision.

use std::time::Duration;

#[cfg(feature = "tower-retry")]
pub(crate) mod adapter;
pub(crate) mod attempt;
pub(crate) mod backoff;
pub(crate) mod budget;
pub(crate) mod counts;
pub(crate) mod future;
mod kept;
mod layer;
mod past;
mod policy;
pub(crate) mod replay;
mod service;
mod session;
mod shared;
mod timer;
mod verdict;

pub use self::layer::RetryLayer;
pub use self::service::Retry;

/// The least wait after a 423. Each counter of the service forgets within a second, and a request
/// inside it may count as one more, refused or not.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);
