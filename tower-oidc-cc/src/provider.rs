//! Credential providers, called before each token request.

use std::{
    env,
    error::Error,
    fmt, fs,
    future::{Future, ready},
    io::{self, Read},
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
};

use tokio::{sync::Mutex, task::spawn_blocking};
use zeroize::Zeroizing;

use crate::Credentials;

/// Provides credentials: fixed ones, or the current ones from outside the program.
///
/// It is called before each token request, so a secret can be rotated without a restart. After
/// refused credentials the next token request follows within two minutes, and the token in use
/// serves meanwhile.
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
/// Credentials on their way.
pub(crate) type Providing = Pin<Box<dyn Future<Output = Provided> + Send>>;

#[derive(Clone)]
enum Source {
    Fixed(Arc<Credentials>),
    /// The names of two variables.
    Env(Arc<str>, Arc<str>),
    File(Arc<File>),
    Function(Arc<dyn Fn() -> Providing + Send + Sync>),
}

/// A path, and the credentials that were read there last.
#[derive(Debug)]
struct File {
    client_id: String,
    path: PathBuf,
    /// The mode bits that are refused.
    refused: u32,
    /// The last good credentials. A read holds the lock, so that reads that hang keep one thread.
    good: Arc<Mutex<Option<Arc<Credentials>>>>,
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
    /// A file that was replaced is read by the next token request. One that is half written,
    /// unreadable, too large or gone leaves the last good secret in use. It must be a regular file of
    /// 16 KiB at most. On unix a file that users other than its owner may read or write is refused:
    /// `chmod 600` it, or see [`readable_by_group`](Self::readable_by_group).
    ///
    /// The file is read on a blocking thread of the runtime. A network file system that hangs keeps
    /// that thread.
    #[must_use]
    pub fn file(client_id: impl Into<String>, client_secret: impl Into<PathBuf>) -> Self {
        let file = File::new(client_id.into(), client_secret.into());
        Self {
            source: Source::File(Arc::new(file)),
        }
    }

    /// Allows the group of a file to read it; other providers are not affected.
    ///
    /// Kubernetes makes 0440 of a secret's mode 0400 where the pod has an `fsGroup`: the file then
    /// belongs to root, and the program reads it by its group. Other members of the group can read
    /// the secret too, so it is not the default.
    #[must_use]
    pub fn readable_by_group(mut self) -> Self {
        if let Source::File(file) = &mut self.source {
            *file = Arc::new(file.readable_by_group());
        }
        self
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
        let ask = move || -> Providing {
            let answer = function();
            Box::pin(async move { answer.await.map(Arc::new).map_err(Into::into) })
        };
        Self {
            source: Source::Function(Arc::new(ask)),
        }
    }

    /// The current credentials. A function is called when this is polled, and may panic then.
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

// === impl File ===

impl File {
    fn new(client_id: String, path: PathBuf) -> Self {
        Self {
            client_id,
            path,
            refused: 0o077,
            good: Arc::default(),
        }
    }

    fn readable_by_group(&self) -> Self {
        Self {
            refused: 0o037,
            ..Self::new(self.client_id.clone(), self.path.clone())
        }
    }

    /// Reads the file again, because it is small and token requests are rare. A watch would miss the
    /// changes of a network file system.
    fn provide(&self) -> Providing {
        let (client_id, path, refused) = (self.client_id.clone(), self.path.clone(), self.refused);
        let good = Arc::clone(&self.good);
        Box::pin(async move {
            let mut good = good.lock_owned().await;
            let read = spawn_blocking(move || {
                let read = read(&path, refused)
                    .and_then(|text| Ok(Arc::new(Credentials::new(client_id, text.as_str())?)));
                match (read, &*good) {
                    (Ok(credentials), _) => *good = Some(credentials),
                    (Err(error), Some(_)) => {
                        tracing::warn!(
                            error,
                            "the secret's file is not usable, the last secret stays in use"
                        );
                    }
                    (Err(error), None) => return Err(error),
                }
                good.clone().ok_or_else(|| "there is none".into())
            });
            read.await.unwrap_or_else(|error| Err(error.into()))
        })
    }
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

fn read(path: &Path, refused: u32) -> Result<Zeroizing<String>, Box<dyn Error + Send + Sync>> {
    let named = |error: io::Error| format!("{}: {error}", path.display());
    // Before it is opened, because opening a pipe waits for its writer.
    if !fs::metadata(path).map_err(named)?.is_file() {
        return Err(named(io::Error::other("it is not a regular file")).into());
    }
    let mut file = fs::File::open(path).map_err(named)?;
    // Of the open file, because the path may lead to another one by now.
    check_mode(&file.metadata().map_err(named)?, refused).map_err(named)?;
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
fn check_mode(metadata: &fs::Metadata, refused: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    if metadata.permissions().mode() & refused == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "users other than its owner may read or write the secret's file: chmod 600 it, or allow its \
         group by `readable_by_group`",
    ))
}

#[cfg(not(unix))]
fn check_mode(_: &fs::Metadata, _: u32) -> io::Result<()> {
    Ok(())
}

/// A secret of a Keycloak has 32 characters.
const LARGEST: usize = 16 * 1024;
