//! Watches the body of a success: that it goes on, and that it comes whole.

use std::time::Duration;

pub(crate) mod bodies;
mod body;
pub(crate) mod future;
mod layer;
mod service;

pub use self::bodies::Bodies;
pub use self::body::GuardBody;
pub use self::layer::GuardLayer;
pub use self::service::Guard;

/// Half of what gateways wait for the next bytes of a server (nginx, `proxy_read_timeout`): who
/// waits longer waits for a connection that is dead.
const IDLE: Duration = Duration::from_secs(30);
