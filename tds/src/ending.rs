//! Decides when a job ends early, because all of its remaining calls would fail.

use std::{io, path::Path, time::Duration};

use tokio::time::Instant;
use tower_tds::{
    Error, Kind,
    layers::{
        errors::GiveUp,
        token::{Health, TokenError},
    },
};
use tower_tds_outcome::chain;

use crate::{
    exit::{Exit, Failure, causes, plain},
    save::{self, TOO_MANY_FILES},
};

/// Why a request brought no data.
#[derive(Debug)]
pub(crate) enum Trouble {
    Service(Error),
    Disk(io::Error),
    /// HTML page in place of data, with its title if it has one.
    Page(Option<String>),
    /// No data in place of some.
    Empty,
    /// Response that the service is still preparing, with its hint for the next request.
    Pending(Option<Duration>),
}

/// Counts the failures since the last success, to decide when to end the job.
#[derive(Debug)]
pub(crate) struct Ending {
    credentials: u32,
    unreachable: u32,
    /// How many unreachable failures end the job; `None` for jobs that outlast an outage.
    outage: Option<u32>,
    wait_quota: bool,
    /// When the present pause ends the job, unless a success comes first.
    patience: Option<Instant>,
}

// === impl Ending ===

impl Ending {
    pub(crate) const fn new(outage: Option<u32>, wait_quota: bool) -> Self {
        Self {
            credentials: 0,
            unreachable: 0,
            outage,
            wait_quota,
            patience: None,
        }
    }

    pub(crate) const fn succeeded(&mut self) {
        self.credentials = 0;
        self.unreachable = 0;
        self.patience = None;
    }

    /// Records received bytes of an unfinished file.
    pub(crate) const fn progressed(&mut self) {
        self.patience = None;
    }

    /// Returns the exit if the key is still paused when the job's patience ends. Patience lasts for
    /// the first pause and two seconds more, and for eight seconds at least; it begins anew with
    /// any success and any received byte.
    ///
    /// `pause` is `None` after an accepted response. It is zero when the pause is over but no
    /// response has shown yet whether that helped.
    pub(crate) fn paused(&mut self, pause: Option<Duration>, now: Instant) -> Option<Exit> {
        let Some(pause) = pause else {
            self.patience = None;
            return None;
        };
        let patience = pause.saturating_add(TRY).max(PATIENCE);
        let first = now.checked_add(patience);
        self.patience = self.patience.or(first);
        let refused_again = !pause.is_zero() && self.patience.is_some_and(|end| end <= now);
        (refused_again && !self.wait_quota).then_some(Exit::Quota)
    }

    /// Records a failure. Returns the exit if the job ends.
    pub(crate) fn failed(&mut self, trouble: &Trouble, token: &Health) -> Option<Exit> {
        let error = match trouble {
            Trouble::Service(error) => error,
            Trouble::Disk(error) => return save::is_the_disk(error).then_some(Exit::SomeFailed),
            Trouble::Empty | Trouble::Pending(_) => return None,
            Trouble::Page(_) => return self.is_an_outage().then_some(Exit::Unreachable),
        };
        let exit = trouble.cause(token);
        let over = match exit {
            // For a quota with a window of a minute, `paused` decides.
            Exit::Quota => !self.wait_quota && error.kind() != Kind::Throttled,
            // A role may be missing for this data alone, so that does not end the job.
            Exit::Credentials if error.kind() != Kind::MissingRole => {
                self.credentials += 1;
                self.credentials >= REFUSED || error.ends_the_job()
            }
            Exit::Unreachable => self.is_an_outage() || error.ends_the_job(),
            _ => error.ends_the_job(),
        };
        over.then_some(exit)
    }

    /// Counts a failure of the service. Returns whether it ends the job.
    fn is_an_outage(&mut self) -> bool {
        self.unreachable += 1;
        self.outage.is_some_and(|most| self.unreachable >= most)
    }
}

// === impl Trouble ===

impl Trouble {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Service(error) => error.kind().as_str(),
            Self::Disk(_) => "disk",
            Self::Page(_) => "page",
            Self::Empty => "empty",
            Self::Pending(_) => "pending",
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Service(error) => Exit::of(error),
            Self::Page(_) | Self::Pending(_) => Exit::Unreachable,
            Self::Disk(_) | Self::Empty => Exit::SomeFailed,
        }
    }

    /// Whether the service answered, which rules out an outage.
    pub(crate) fn is_answer(&self) -> bool {
        match self {
            Self::Service(error) => {
                let exit = Exit::of(error);
                matches!(exit, Exit::Quota | Exit::SomeFailed) || error.kind() == Kind::MissingRole
            }
            Self::Empty | Self::Pending(_) => true,
            Self::Disk(_) | Self::Page(_) => false,
        }
    }

    /// Whether the reason concerns this resource alone. So does a missing role, for which a key is
    /// to blame nevertheless.
    pub(crate) fn is_of_one(&self) -> bool {
        matches!(self, Self::Pending(_)) || self.exit() == Exit::SomeFailed
    }

    /// Whether the service was unreachable or failing, so that a later attempt may succeed.
    pub(crate) fn is_outage(&self, token: &Health) -> bool {
        let may_pass = match self {
            Self::Service(error) => error.is_retryable(),
            Self::Page(_) => true,
            _ => false,
        };
        may_pass && self.cause(token) == Exit::Unreachable
    }

    /// Returns the exit as [`exit`](Self::exit) does, but regards the token: a refused token is an
    /// outage while the token endpoint fails, because only time can bring another one.
    pub(crate) fn cause(&self, token: &Health) -> Exit {
        match self {
            Self::Service(error) if is_of_the_token(error) && token.last_error.is_some() => {
                Exit::Unreachable
            }
            _ => self.exit(),
        }
    }

    /// Converts this into the failure of a job that makes one request.
    pub(crate) fn failure(&self, target: &str) -> Failure {
        let mut failure = Failure::new(self.exit(), self.line(Path::new(target)));
        failure.kind = Some(self.kind());
        failure
    }

    /// Returns the line as [`line`](Self::line) does, without why the client made no further attempt:
    /// the job makes one.
    pub(crate) fn retried(&mut self, name: &Path) -> String {
        if let Self::Service(error) = self {
            error.set_gave_up(GiveUp::Fatal);
        }
        self.line(name)
    }

    /// Returns a line for people, which begins with the name of the file.
    pub(crate) fn line(&self, name: &Path) -> String {
        let name = name.display();
        match self {
            Self::Service(error) => {
                // Its own line has all words of the server.
                let refused = refusal(error).map(ToString::to_string);
                let line = plain(&refused.unwrap_or_else(|| error.to_string()));
                // By text: the error itself is of rustls, which this program does not depend on.
                let texts = chain(error).map(ToString::to_string);
                let names = |text: String| Some(text.split_once(NAMES)?.1.to_owned());
                match texts.filter_map(names).last() {
                    Some(names) => format!("{line}{NAMES}{names}"),
                    None => line,
                }
            }
            Self::Disk(error) if save::is_too_many_files(error) => format!(
                "{name}: too few file descriptors (ulimit -n); raise their limit, or lower --jobs \
                 and --connections"
            ),
            Self::Disk(error) => format!("{name}: {error}"),
            Self::Empty => format!(
                "{name}: the response is empty, so the old data stays; --allow-empty takes it"
            ),
            Self::Pending(_) => {
                format!("{name}: the service is still preparing it (status 202); try again later")
            }
            Self::Page(title) => {
                let title = title.as_ref().map(|title| format!(" titled {title:?}"));
                let title = title.unwrap_or_default();
                format!(
                    "{name}: the response is an HTML page{title} instead of data; check the base \
                     URL, log in to the network, or allow pages with --accept text/html"
                )
            }
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        // If this process cannot open another socket, neither the network nor the service is to
        // blame.
        match causes(&error).contains("(os error 24)") {
            true => Self::Disk(io::Error::from_raw_os_error(TOO_MANY_FILES)),
            false => Self::Service(advised(error)),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

/// Replaces advice to a programmer, which names functions of the client, by advice to a user.
pub(crate) fn advised(error: Error) -> Error {
    let advice = match error.kind() {
        _ if error.is_unknown_issuer() => "name a file with its CA: --ca or TDS_CA_FILE",
        Kind::TooLarge => "fetch it with get or bulk, which have no such bound",
        Kind::RateExceeded => "lower --rate, or share the limits by --share or --fleet",
        Kind::ConnectionLimit => {
            "lower --connections, or share the limits by --share or --fleet; another key does not help"
        }
        Kind::LimitTimeout => "send fewer requests at once, or allow a longer --deadline",
        Kind::Unrecognized => "see each step with --verbose",
        _ => return error,
    };
    error.with_advice(advice)
}

/// Returns the error of the token endpoint, if that refused the key.
fn refusal(error: &Error) -> Option<&TokenError> {
    let mut tokens = chain(error).filter_map(|cause| cause.downcast_ref::<TokenError>());
    tokens.find(|error| error.oauth_error().is_some())
}

/// Whether the error concerns the token, so that another token may be accepted.
pub(crate) fn is_of_the_token(error: &Error) -> bool {
    error.kind() == Kind::InvalidToken
}

/// Printed when [`Ending::paused`] ends the job.
pub(crate) const QUOTA_GONE: &str = "the quota is used up, and a wait did not help; \
                                     try again later, or wait with --wait-quota";

/// Text of rustls before the names in a certificate, if the host is not among them.
const NAMES: &str = "; certificate is only valid for ";

/// Refusals in a row, after which no further token is tried. The client has replaced each token itself.
const REFUSED: u32 = 3;

/// Shortest patience. With the second that a job waits at its start, the job thus ends within ten.
const PATIENCE: Duration = Duration::from_secs(8);

/// Time allowed for the first response after a pause.
const TRY: Duration = Duration::from_secs(2);
