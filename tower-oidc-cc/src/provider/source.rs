//! One place that credentials come from.

use std::{
    error::Error,
    fmt,
    future::{Future, ready},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use crate::Credentials;

/// Credentials, or why there are none.
pub(crate) type Provided = Result<Arc<Credentials>, Box<dyn Error + Send + Sync>>;
/// The answer on its way. The box is on the cold path, once per token request.
pub(crate) type Providing = Pin<Box<dyn Future<Output = Provided> + Send>>;

/// Its `Debug` must not show a secret.
pub(crate) trait Source: fmt::Debug + Send + Sync {
    fn provide(&self) -> Providing;

    /// What to go on with when that takes too long, if anything.
    fn last(&self) -> Option<Arc<Credentials>> {
        None
    }

    /// How often it is worth asking again after a refusal; `None` if the answer never changes.
    fn watch(&self) -> Option<Duration>;
}

/// Credentials that never change.
#[derive(Debug)]
pub(super) struct Fixed {
    credentials: Arc<Credentials>,
}

// === impl Fixed ===

impl Fixed {
    pub(super) fn new(credentials: Credentials) -> Self {
        Self {
            credentials: Arc::new(credentials),
        }
    }
}

impl Source for Fixed {
    fn provide(&self) -> Providing {
        Box::pin(ready(Ok(Arc::clone(&self.credentials))))
    }

    fn watch(&self) -> Option<Duration> {
        None
    }
}
