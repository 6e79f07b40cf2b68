//! Exit codes of all jobs, and the failure that ends a job with one.

use std::{fmt, iter};

use http::StatusCode;
use tower_tds::{BuildError, Error, Kind, layers::errors::Sent};
use tower_tds_outcome::chain;

/// End of a job, which becomes its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Whole,
    SomeFailed,
    Usage,
    Quota,
    Credentials,
    Unreachable,
    /// The signal with this number ended the job.
    Signal(u8),
}

/// Why a job ends early.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Kind of the error, if there is one.
    pub(crate) kind: Option<&'static str>,
    why: String,
}

// === impl Exit ===

impl Exit {
    /// Returns the exit for an error, which shows what can help: a later run, another key or role,
    /// or the service's operator.
    pub(crate) fn of(error: &Error) -> Self {
        // A call that waits for the quota may reach its deadline first.
        let waits = error.waited_for();
        if waits.is_some_and(|cause| cause.ends_with("after a 429")) {
            return Self::Quota;
        }
        // Neither the key nor the service is to blame.
        if is_of_the_proxy(error) {
            return Self::Usage;
        }
        match error.kind() {
            Kind::Throttled | Kind::QuotaExhausted => Self::Quota,
            Kind::MissingCredentials
            | Kind::InvalidToken
            | Kind::MissingRole
            | Kind::TokenRefused => Self::Credentials,
            Kind::TokenUnavailable
            | Kind::RateExceeded
            | Kind::ConnectionLimit
            | Kind::LimitTimeout
            | Kind::Unavailable
            | Kind::Connect
            | Kind::Tls
            | Kind::Timeout
            | Kind::Reset
            | Kind::Truncated => Self::Unreachable,
            // This response is unusable, but other requests may succeed.
            _ => Self::SomeFailed,
        }
    }

    /// Returns the exit of a job of many calls. If none succeeded and all failed for one reason,
    /// that is its exit.
    pub(crate) fn of_all(reasons: impl IntoIterator<Item = Self>, has_success: bool) -> Self {
        let mut reasons = reasons.into_iter();
        match reasons.next() {
            None => Self::Whole,
            Some(first) if !has_success && reasons.all(|other| other == first) => first,
            Some(_) => Self::SomeFailed,
        }
    }

    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Whole => 0,
            Self::SomeFailed => 1,
            Self::Usage => 2,
            Self::Quota => 3,
            Self::Credentials => 4,
            Self::Unreachable => 5,
            Self::Signal(number) => number.saturating_add(128),
        }
    }
}

/// Whether a proxy refused the way to the service: it has no right password, or does not allow it.
fn is_of_the_proxy(error: &Error) -> bool {
    let mut errors = chain(error).filter_map(|cause| cause.downcast_ref::<Error>());
    let is_refused = |it: &Error| it.kind() == Kind::Rejected && it.sent() == Sent::Never;
    error.status() == Some(StatusCode::PROXY_AUTHENTICATION_REQUIRED) || errors.any(is_refused)
}

// === impl Failure ===

impl Failure {
    pub(crate) fn new(exit: Exit, why: impl Into<String>) -> Self {
        let why = why.into();
        let kind = None;
        Self { exit, kind, why }
    }

    /// Returns the failure for a wrong argument or setting.
    pub(crate) fn usage(why: impl Into<String>) -> Self {
        Self::new(Exit::Usage, why)
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        Self::usage(causes(&error))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// Formats an error and its causes as one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let causes = iter::successors(Some(error), |error| error.source());
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    plain(&causes.join(": "))
}

/// Puts the options of this program in place of the functions that a text of the library names.
pub(crate) fn plain(text: &str) -> String {
    let replaced = |text: String, (theirs, ours): &(&str, &str)| text.replace(theirs, ours);
    WORDS.iter().fold(text.to_owned(), replaced)
}

/// Next steps of a programmer, each with that of a user of this program.
pub(crate) const WORDS: [(&str, &str); 6] = [
    ("the base URL has", "TDS_BASE_URL has"),
    ("Builder::proxy", "--proxy or TDS_PROXY"),
    (
        "use `new` with the whole address",
        "give the whole address with --token-url",
    ),
    (
        "use a cluster client",
        "give the address of the node that has it",
    ),
    (
        "the client id, the secret, the fields of the form, and that this is the token endpoint",
        "TDS_CLIENT_ID, its secret and the address",
    ),
    (
        "correct the source of the credentials",
        "correct TDS_CLIENT_SECRET_FILE",
    ),
];

/// Shown by `--help`, and compared with the README by a test.
pub(crate) const TABLE: &str = "Exit codes:
  0  success: everything requested is there
  1  some requests failed, or the job was interrupted
  2  wrong arguments or settings: correct them
  3  quota used up: try again later
  4  credentials refused: correct the key or its roles
  5  service unreachable or failing: try again later";
