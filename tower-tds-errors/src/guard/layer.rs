//! The layer: how long a body may say nothing.

use std::time::Duration;

use tower_layer::Layer;

use super::{Bodies, Guard, IDLE};

/// Watches the bodies of successes, whose errors become this crate's.
///
/// Use it right over [`Classify`](crate::Classify), below decompression: what is counted are the
/// bytes that the service announced. Without it a body's errors are the client's own, and a body
/// that stalls is waited for without end.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, channel::Channel};
/// use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};
/// use tower_tds_errors::{ClassifyLayer, GuardLayer, Kind};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let silent = service_fn(async |_: Request<()>| {
///     let (mut bytes, body) = Channel::<&[u8], BoxError>::new(1);
///     bytes.send_data(b"half").await.ok();
///     std::mem::forget(bytes);
///     Ok::<_, BoxError>(Response::new(body))
/// });
/// let stack = ServiceBuilder::new()
///     .layer(GuardLayer::new().idle(Duration::from_secs(5)))
///     .layer(ClassifyLayer::new())
///     .service(silent);
/// let response = stack.oneshot(Request::new(())).await.unwrap();
/// let error = response.into_body().collect().await.map(drop).unwrap_err();
/// assert_eq!((error.kind(), error.received()), (Kind::Stalled, Some(4)));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct GuardLayer {
    idle: Duration,
    bodies: Option<Bodies>,
}

// === impl GuardLayer ===

impl GuardLayer {
    /// Bodies may say nothing for 30 s.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            idle: IDLE,
            bodies: None,
        }
    }

    /// Sets how long a body may say nothing while it is waited for.
    #[must_use]
    pub const fn idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// Counts the bodies while they are read.
    #[must_use]
    pub fn bodies(mut self, bodies: Bodies) -> Self {
        self.bodies = Some(bodies);
        self
    }
}

impl Default for GuardLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        Guard::new(inner, self.idle, self.bodies.clone())
    }
}
