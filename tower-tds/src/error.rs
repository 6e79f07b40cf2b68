//! Errors of building a client.

use std::{borrow::Cow, error, fmt};

use tower_tds_outcome::Secrets;

/// An invalid setting of a client: its name, and what is wrong with it.
///
/// Its text is one line: the setting, why it is not usable, and what to write. `Debug` prints the
/// same line, so that a `main` that returns the error shows it.
///
/// # Examples
/// ```
/// use tower_tds::{Client, Credentials};
///
/// let credentials = Credentials::new("my-client-id", "s3cr3t")?;
/// let error = Client::builder("https://auth.example.org", "http://data.example.org", credentials)
///     .build()
///     .expect_err("plain http is for this machine alone");
/// assert!(error.to_string().starts_with("the base URL is not usable: "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BuildError {
    what: Cow<'static, str>,
    source: Option<Box<dyn error::Error + Send + Sync>>,
}

// === impl BuildError ===

impl BuildError {
    pub(crate) fn new(what: impl Into<Cow<'static, str>>) -> Self {
        Self {
            what: what.into(),
            source: None,
        }
    }

    pub(crate) fn because(
        what: &'static str,
        source: impl Into<Box<dyn error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            what: what.into(),
            source: Some(source.into()),
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.source {
            Some(source) => {
                // Foreign texts may be long, and may quote the setting.
                write!(f, ": {}", Secrets::default().line(&source.to_string()))
            }
            None => Ok(()),
        }
    }
}

/// Prints the line, because `main` prints its error like this.
impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl error::Error for BuildError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        // Skips the cause, which the line already contains.
        self.source.as_ref()?.source()
    }
}
