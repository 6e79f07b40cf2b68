//! Errors of building a client.

use std::{
    borrow::Cow,
    error::Error,
    fmt::{self, Display},
};

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
pub struct BuildError(Cow<'static, str>);

// === impl BuildError ===

impl BuildError {
    pub(crate) fn new(line: impl Into<Cow<'static, str>>) -> Self {
        Self(line.into())
    }

    pub(crate) fn because(what: &'static str, cause: impl Display) -> Self {
        // Foreign texts may be long, and may quote the setting.
        let cause = Secrets::default().line(&cause.to_string());
        Self::new(format!("{what}: {cause}"))
    }
}

impl Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Prints the line, because `main` prints its error like this.
impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl Error for BuildError {}
