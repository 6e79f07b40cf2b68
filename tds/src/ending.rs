//! When to end a job whose remaining calls would all fail.

use std::{io, path::Path, time::Duration};

use tokio::time::Instant;
use tower_tds::{Error, Kind, layers::token::Health};

use crate::{
    exit::{Exit, Failure, causes},
    save::{self, TOO_MANY_FILES},
};

/// Why there is no file.
#[derive(Debug)]
pub(crate) enum Trouble {
    Service(Error),
    Disk(io::Error),
    /// Success that is not a file.
    Answer(&'static str),
    /// Page in place of data, with its title if it has one.
    Page(Option<String>),
}

/// Counts the failures since the last success.
#[derive(Debug)]
pub(crate) struct Ending {
    credentials: u32,
    /// Generation of the token at the last success; zero before the first.
    worked: u64,
    unreachable: u32,
    /// How many unreachable failures end the job; `None` for jobs that outlast an outage.
    outage: Option<u32>,
    wait_quota: bool,
    /// When a pause without a success ends the job, if there is one.
    patience: Option<Instant>,
}

// === impl Ending ===

impl Ending {
    pub(crate) const fn new(outage: Option<u32>, wait_quota: bool) -> Self {
        Self {
            credentials: 0,
            worked: 0,
            unreachable: 0,
            outage,
            wait_quota,
            patience: None,
        }
    }

    pub(crate) fn succeeded(&mut self, token: &Health) {
        self.credentials = 0;
        self.worked = token.generation;
        self.unreachable = 0;
        self.patience = None;
    }

    /// Records received bytes of an unfinished file.
    pub(crate) const fn progressed(&mut self) {
        self.patience = None;
    }

    /// Returns the exit if the key is still paused after the job's patience: the length of the
    /// first pause and two seconds, and at least eight seconds. Any success, and any received byte,
    /// begins anew.
    ///
    /// `pause` is `None` after an accepted response. It is zero when the pause is over and no
    /// response has come yet, so the outcome is unknown.
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
            Trouble::Answer(_) => return None,
            Trouble::Page(_) => return self.is_an_outage().then_some(Exit::Unreachable),
        };
        let exit = trouble.cause(token);
        let over = match exit {
            // `paused` decides about windows of a minute.
            Exit::Quota => !self.wait_quota && error.kind() != Kind::Throttled,
            // Perhaps the role is missing for this data alone.
            Exit::Credentials if error.kind() != Kind::MissingRole => {
                // Only a call that began after the newest token is evidence about that token.
                let began = error.elapsed().unwrap_or_default();
                let is_of_the_newest = token.last_success.is_none_or(|came| began < came);
                self.credentials += u32::from(is_of_the_newest);
                let is_new = token.generation > self.worked;
                (self.credentials >= REFUSED && is_new) || error.ends_the_job()
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
            Self::Answer(_) => "no_file",
            Self::Page(_) => "page",
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Service(error) => Exit::of(error),
            Self::Page(_) => Exit::Unreachable,
            Self::Disk(_) | Self::Answer(_) => Exit::SomeFailed,
        }
    }

    /// Whether the service answered, so that there is no outage.
    pub(crate) fn is_answer(&self) -> bool {
        match self {
            Self::Service(error) => {
                let exit = Exit::of(error);
                matches!(exit, Exit::Quota | Exit::SomeFailed) || error.kind() == Kind::MissingRole
            }
            Self::Answer(_) => true,
            Self::Disk(_) | Self::Page(_) => false,
        }
    }

    /// Whether the service was unreachable or failing, and may not be later.
    pub(crate) fn is_outage(&self, token: &Health) -> bool {
        let may_pass = match self {
            Self::Service(error) => error.is_retryable(),
            Self::Page(_) => true,
            Self::Disk(_) | Self::Answer(_) => false,
        };
        may_pass && self.cause(token) == Exit::Unreachable
    }

    /// As [`exit`](Self::exit), with what is known about the token: another one may be accepted,
    /// but while the token endpoint fails, time is what helps.
    pub(crate) fn cause(&self, token: &Health) -> Exit {
        match self {
            Self::Service(error) if is_of_the_token(error) && token.last_error.is_some() => {
                Exit::Unreachable
            }
            _ => self.exit(),
        }
    }

    /// Returns the failure of a job with one request.
    pub(crate) fn failure(&self, target: &str) -> Failure {
        let mut failure = Failure::new(self.exit(), self.line(Path::new(target)));
        failure.kind = Some(self.kind());
        failure
    }

    /// Returns the text for people, with the name of the file.
    pub(crate) fn line(&self, name: &Path) -> String {
        let name = name.display();
        match self {
            Self::Service(error) => error.to_string(),
            Self::Disk(error) if save::is_too_many_files(error) => format!(
                "{name}: too few file descriptors (ulimit -n); raise their limit, or lower --jobs \
                 and --connections"
            ),
            Self::Disk(error) => format!("{name}: {error}"),
            Self::Answer(why) => format!("{name}: {why}"),
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
        // Neither network nor service is to blame if a socket cannot be opened here.
        match causes(&error).contains("(os error 24)") {
            true => Self::Disk(io::Error::from_raw_os_error(TOO_MANY_FILES)),
            false => Self::Service(error),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

/// Whether another token may be accepted.
pub(crate) fn is_of_the_token(error: &Error) -> bool {
    matches!(error.kind(), Kind::InvalidToken | Kind::Unauthorized)
}

/// Printed when [`Ending::paused`] ends the job.
pub(crate) const QUOTA_GONE: &str = "quota used up, and still so after a wait; \
                                     come back later, or wait with --wait-quota";

/// Refusals of tokens that never worked, after which a further token does not help.
const REFUSED: u32 = 3;

/// Shortest patience: a job that waits a second at its start ends within ten.
const PATIENCE: Duration = Duration::from_secs(8);

/// Time allowed for the first response after a pause.
const TRY: Duration = Duration::from_secs(2);
