//! Credential providers, called before each token request.

use std::{
    env,
    error::Error,
    fmt, fs,
    future::{Future, ready},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::{sync::Mutex, task::spawn_blocking};
use zeroize::Zeroizing;

use crate::Credentials;

/// Provides credentials: fixed ones, or the current ones from outside the program.
///
/// It is called before each token request, so a secret can be rotated without a restart. After
/// refused credentials the next token request follows within two minutes, and the token in use
/// serves meanwhile.
#[derive(Clone)]
pub struct Provider(Arc<dyn Fn() -> Providing + Send + Sync>);

/// Credentials, or why there are none.
pub(crate) type Provided = Result<Arc<Credentials>, Box<dyn Error + Send + Sync>>;
/// Credentials on their way.
pub(crate) type Providing = BoxFuture<'static, Provided>;

// === impl Provider ===

impl Provider {
    /// Reads the client id and the secret from these two variables of the environment.
    #[must_use]
    pub fn env(client_id: impl Into<String>, client_secret: impl Into<String>) -> Self {
        let (client_id, client_secret) = (client_id.into(), client_secret.into());
        Self::new(move || ready(from_env(&client_id, &client_secret)))
    }

    /// Reads the secret of `client_id` from a file that holds it and nothing else.
    ///
    /// A file that was replaced is read by the next token request. One that is half written,
    /// unreadable, too large or gone leaves the last good secret in use. It must be a regular file of
    /// 16 KiB at most. On unix a file is refused that its group may write, or that other users may
    /// read or write. Its group may read it, as Kubernetes mounts a secret with `fsGroup`.
    ///
    /// The file is read on a blocking thread of the runtime. A network file system that hangs keeps
    /// that thread.
    #[must_use]
    pub fn file(client_id: impl Into<String>, client_secret: impl Into<PathBuf>) -> Self {
        let (client_id, path) = (client_id.into(), client_secret.into());
        // The last good credentials. A read holds the lock, so that reads that hang keep one thread.
        let good = Arc::default();
        Self::new(move || from_file(client_id.clone(), path.clone(), Arc::clone(&good)))
    }

    /// Calls an async function, such as the client of a vault.
    ///
    /// It has the timeout of a token request. Of its error only the text is kept, without what may
    /// be a secret: queries of URLs, values after a sign of equality, long words.
    #[must_use]
    pub fn from_fn<F, A, E>(function: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Self::new(move || function().map(|provided| provided.map(Arc::new).map_err(Into::into)))
    }

    fn new<A>(function: impl Fn() -> A + Send + Sync + 'static) -> Self
    where
        A: Future<Output = Provided> + Send + 'static,
    {
        Self(Arc::new(move || function().boxed()))
    }

    /// The current credentials. A function may panic when it is called and when this is polled.
    pub(crate) async fn provide(&self) -> Provided {
        (self.0)().await
    }
}

impl From<Credentials> for Provider {
    fn from(credentials: Credentials) -> Self {
        let credentials = Arc::new(credentials);
        Self::new(move || ready(Ok(Arc::clone(&credentials))))
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Provider")
    }
}

/// Reads the file again, because it is small and token requests are rare. A watch would miss the
/// changes of a network file system.
async fn from_file(
    client_id: String,
    path: PathBuf,
    good: Arc<Mutex<Option<Arc<Credentials>>>>,
) -> Provided {
    let mut good = good.lock_owned().await;
    let read = spawn_blocking(move || {
        let read = read(&path).and_then(|text| Ok(Credentials::new(client_id, text.as_str())?));
        match (read, &*good) {
            (Ok(credentials), _) => Ok(Arc::clone(good.insert(Arc::new(credentials)))),
            (Err(error), Some(last)) => {
                tracing::warn!(
                    error,
                    "the secret's file is not usable, the last secret stays in use"
                );
                Ok(Arc::clone(last))
            }
            (Err(error), None) => Err(error),
        }
    });
    read.await.unwrap_or_else(|error| Err(error.into()))
}

fn from_env(client_id: &str, client_secret: &str) -> Provided {
    let client_id = variable(client_id)?;
    let secret = Zeroizing::new(variable(client_secret)?);
    Ok(Arc::new(Credentials::new(client_id, secret.as_str())?))
}

/// `VarError` quotes a value that is not Unicode, which may be the secret.
fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| match error {
        env::VarError::NotPresent => format!("the environment variable {name} is not set"),
        env::VarError::NotUnicode(_) => format!("the environment variable {name} is not Unicode"),
    })
}

fn read(path: &Path) -> Result<Zeroizing<String>, Box<dyn Error + Send + Sync>> {
    let named = |error: io::Error| format!("{}: {error}", path.display());
    // Before it is opened, because opening a pipe waits for its writer.
    if !fs::metadata(path).map_err(named)?.is_file() {
        return Err(named(io::Error::other("it is not a regular file")).into());
    }
    let mut file = fs::File::open(path).map_err(named)?;
    // Of the open file, because the path may lead to another one by now.
    check_mode(&file.metadata().map_err(named)?).map_err(named)?;
    // With room for all of it from the start, no copy of the secret is left behind.
    let mut text = Zeroizing::new(String::with_capacity(LARGEST + 1));
    let limit = u64::try_from(LARGEST + 1).unwrap_or(u64::MAX);
    let read = Read::by_ref(&mut file)
        .take(limit)
        .read_to_string(&mut text);
    if read.map_err(named)? > LARGEST {
        return Err(named(io::Error::other("it is larger than 16 KiB")).into());
    }
    Ok(text)
}

#[cfg(unix)]
fn check_mode(metadata: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    if metadata.permissions().mode() & 0o027 == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "other users may read the secret's file, or its group may write it: chmod 600 it",
    ))
}

#[cfg(not(unix))]
fn check_mode(_: &fs::Metadata) -> io::Result<()> {
    Ok(())
}

/// A secret of a Keycloak has 32 characters.
const LARGEST: usize = 16 * 1024;
