//! Credentials from an async function.

use std::{error::Error, fmt, future::Future, sync::Arc, time::Duration};

use super::source::{Providing, Source};
use crate::Credentials;

/// The function, with the type of its future erased.
pub(super) struct Function {
    ask: Box<dyn Fn() -> Providing + Send + Sync>,
}

// === impl Function ===

impl Function {
    pub(super) fn new<F, A, E>(function: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Self {
            ask: Box::new(move || {
                let answer = function();
                Box::pin(async move { answer.await.map(Arc::new).map_err(Into::into) })
            }),
        }
    }
}

impl Source for Function {
    fn provide(&self) -> Providing {
        (self.ask)()
    }

    fn watch(&self) -> Option<Duration> {
        Some(WATCH)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Function")
    }
}

/// What is behind the function may be a server with limits of its own, and is not asked more often
/// than the promise needs: changed credentials are tried within a second.
const WATCH: Duration = Duration::from_secs(1);
