//! Credential providers, asked before each token request.

use std::{
    env,
    error::Error,
    fmt,
    future::{Future, ready},
    path::PathBuf,
    pin::Pin,
    sync::Arc,
};

use zeroize::Zeroizing;

use self::file::File;
use crate::Credentials;

mod file;

/// Yields credentials: fixed ones, or those of the moment from outside the program.
///
/// It is asked before each token request, so a secret can be rotated without a restart: credentials
/// that have changed are used by the next token request, which comes within two minutes of a refused
/// one. The token in use serves meanwhile.
///
/// # Examples
///
/// ```
/// use tower_oidc_cc::Provider;
///
/// // As Kubernetes mounts a secret with `fsGroup`: readable by the group, which is this program's.
/// let mounted = Provider::file("my-client", "/etc/secrets/client").readable_by_group();
/// # let _ = mounted;
/// ```
#[derive(Clone)]
pub struct Provider {
    source: Source,
}

/// Credentials, or why there are none.
pub(crate) type Provided = Result<Arc<Credentials>, Box<dyn Error + Send + Sync>>;
/// The answer on its way. The box is on the cold path, once per token request.
pub(crate) type Providing = Pin<Box<dyn Future<Output = Provided> + Send>>;

#[derive(Clone)]
enum Source {
    Fixed(Arc<Credentials>),
    /// The names of two variables.
    Env(Arc<str>, Arc<str>),
    File(Arc<File>),
    Function(Arc<dyn Fn() -> Providing + Send + Sync>),
}

// === impl Provider ===

impl Provider {
    /// Reads the client id and the secret from these two variables of the environment.
    #[must_use]
    pub fn env(client_id: impl Into<String>, client_secret: impl Into<String>) -> Self {
        Self {
            source: Source::Env(client_id.into().into(), client_secret.into().into()),
        }
    }

    /// Reads the secret of `client_id` from a file that holds it and nothing else.
    ///
    /// A file that was replaced, by renaming another over it for one, is seen at the next token
    /// request. One that is half written, unreadable or gone leaves the last good secret in use. It
    /// has to be a regular file: a pipe is refused. On unix a file that others than its owner may
    /// read or write is refused: `chmod 600` it, or see
    /// [`readable_by_group`](Self::readable_by_group).
    ///
    /// The file is read on a thread of the runtime's, for as long as a token request may take. A
    /// network file system that hangs keeps that thread, and a runtime waits at its end for its
    /// threads, if it is not told otherwise (`shutdown_timeout`).
    #[must_use]
    pub fn file(client_id: impl Into<String>, client_secret: impl Into<PathBuf>) -> Self {
        let file = File::new(client_id.into(), client_secret.into());
        Self {
            source: Source::File(Arc::new(file)),
        }
    }

    /// Lets the group of a file read it, too; other providers have none.
    ///
    /// Kubernetes makes 0440 of a secret's mode 0400 where the pod has an `fsGroup`: the file then
    /// belongs to root, and the program may read it by its group alone. Where the group has other
    /// members, they can read the secret; that is why it is not the default. Writing stays refused.
    #[must_use]
    pub fn readable_by_group(mut self) -> Self {
        if let Source::File(file) = &mut self.source {
            *file = Arc::new(file.readable_by_group());
        }
        self
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
        let ask = move || -> Providing {
            let answer = function();
            Box::pin(async move { answer.await.map(Arc::new).map_err(Into::into) })
        };
        Self {
            source: Source::Function(Arc::new(ask)),
        }
    }

    /// The credentials of this moment. A function runs when this is polled, and may panic then.
    pub(crate) fn provide(&self) -> Providing {
        match &self.source {
            Source::Fixed(credentials) => Box::pin(ready(Ok(Arc::clone(credentials)))),
            Source::Env(id, secret) => Box::pin(ready(from_env(id, secret))),
            Source::File(file) => file.provide(),
            Source::Function(ask) => {
                let ask = Arc::clone(ask);
                Box::pin(async move { ask().await })
            }
        }
    }
}

impl From<Credentials> for Provider {
    fn from(credentials: Credentials) -> Self {
        Self {
            source: Source::Fixed(Arc::new(credentials)),
        }
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Fixed(credentials) => credentials.fmt(f),
            Source::Env(id, secret) => f.debug_tuple("Env").field(id).field(secret).finish(),
            Source::File(file) => file.fmt(f),
            Source::Function(_) => f.write_str("Function"),
        }
    }
}

fn from_env(client_id: &str, client_secret: &str) -> Provided {
    let client_id = variable(client_id)?;
    // The environment keeps its own copy, but there is no need for a second one.
    let secret = Zeroizing::new(variable(client_secret)?);
    Ok(Arc::new(Credentials::new(client_id, secret.as_str())?))
}

/// `VarError` quotes a value that is not Unicode, and that value may be the secret.
fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| match error {
        env::VarError::NotPresent => format!("the environment variable {name} is not set"),
        env::VarError::NotUnicode(_) => format!("the environment variable {name} is no Unicode"),
    })
}
