//! Where credentials come from, asked before each token request.

use std::{error::Error, fmt, future::Future, sync::Arc};

use self::{
    env::Env,
    file::File,
    function::Function,
    source::{Fixed, Source},
};
use crate::Credentials;

mod env;
mod file;
mod function;
pub(crate) mod source;

/// Yields credentials: fixed ones, or those of the moment from outside the program.
///
/// It is asked before each token request, so a secret can be rotated without a restart. After the
/// server has refused what it gave, it is asked again and again (twice a second; a function once a
/// second), and credentials that differ are tried at once: the token in use serves
/// meanwhile, and nobody has to touch the program.
///
/// For a rotation without a gap at a server that allows several keys, name two with
/// [`or`](Self::or).
///
/// # Examples
///
/// ```
/// use tower_oidc_cc::{Credentials, Provider};
///
/// // The old key until the server refuses it, and the new one from then on.
/// let keys = Provider::from(Credentials::new("old-key", "s3cr3t-1")?)
///     .or(Credentials::new("new-key", "s3cr3t-2")?);
/// assert!(!format!("{keys:?}").contains("s3cr3t"));
/// # Ok::<(), tower_oidc_cc::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Provider {
    sources: Vec<Arc<dyn Source>>,
}

// === impl Provider ===

impl Provider {
    /// Reads the client id and the secret from these two variables of the environment.
    #[must_use]
    pub fn env(client_id: impl Into<String>, client_secret: impl Into<String>) -> Self {
        Self::one(Env::new(client_id.into(), client_secret.into()))
    }

    /// Reads the secret of `client_id` from a file that holds it and nothing else.
    ///
    /// A file that was replaced, by renaming another over it for one, is seen at the next token
    /// request. One that is half written, unreadable or gone leaves the last good secret in use; so
    /// does one that hangs, after the timeout of a token request.
    /// On unix a file that others than its owner may read or write is refused: `chmod 600` it. Where
    /// it is mounted with a wider mode, ask for 0400 (`defaultMode` in Kubernetes, `mode` of a
    /// secret in Docker), or read it by [`from_fn`](Self::from_fn), which leaves the mode to you.
    #[must_use]
    pub fn file(
        client_id: impl Into<String>,
        client_secret: impl Into<std::path::PathBuf>,
    ) -> Self {
        Self::one(File::new(client_id.into(), client_secret.into()))
    }

    /// Asks an async function, such as the client of a vault.
    ///
    /// It is given the timeout of a token request for its answer.
    #[must_use]
    pub fn from_fn<F, A, E>(function: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Self::one(Function::new(function))
    }

    /// Falls back to `next` when the server refuses these credentials as invalid, or when there
    /// are none.
    ///
    /// Whichever was accepted last is asked first from then on. Nothing but a refusal of the
    /// credentials themselves leads to the next ones: a limit or a fault of the server never does,
    /// and each try counts in the [`TokenBudget`](crate::TokenBudget).
    #[must_use]
    pub fn or(mut self, next: impl Into<Self>) -> Self {
        self.sources.extend(next.into().sources);
        self
    }

    pub(crate) fn sources(&self) -> &[Arc<dyn Source>] {
        &self.sources
    }

    fn one(source: impl Source + 'static) -> Self {
        Self {
            sources: vec![Arc::new(source)],
        }
    }
}

impl From<Credentials> for Provider {
    fn from(credentials: Credentials) -> Self {
        Self::one(Fixed::new(credentials))
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.sources).finish()
    }
}
